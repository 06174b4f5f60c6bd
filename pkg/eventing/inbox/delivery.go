package inbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// delivery is an event in hand, with every message that brought it.
type delivery struct {
	change Change
	// invalid is the reason why the event belongs in the dead letters, or nil.
	invalid  error
	messages []*pubsub.Message

	// received is the time when the first message came. The first span of the event begins at this time,
	// and received is zero from then on.
	received time.Time
	// starts is how many times the event was started without a recorded end, including the present
	// start. starts is 0 while the present start is not recorded. Otherwise it is the value of the
	// column begun.
	starts int
	// startedBefore says that an earlier process started to apply the event, and ended before the
	// result was recorded.
	startedBefore bool
	// gaps counts how many times the event met a gap or had diverged.
	gaps int
	// diverged says that the event was found to be of another history, and was reported.
	diverged bool
	// lost says that the owner no longer has the event.
	lost bool
	// putOffs counts how many times the event was put off: its aggregate was blocked for a pause, without a
	// counted failure. The method putOff has the causes.
	putOffs int
	// limited is true if a transaction of this event alone has met a time limit.
	limited bool
	// breaks counts the transactions of this event alone that have broken their connection in the handler.
	breaks int
	// bisections counts the batches that contained the event, failed, and were halved.
	bisections int
	// lockWait is the longest wait for each lock in the transaction of a part of a batch, after the whole
	// batch has met a lock. It is 0 if no batch with this event has met a lock, and again after the event
	// was queued.
	lockWait time.Duration
	// held is true once the method hold has written the event's inbox row as held, or has found the row
	// dead or discarded.
	held bool
	// poison says that this build does not know the event, and that the event is at fault, not
	// the build.
	poison bool
	// deadLettered says that the event's dead letter was published.
	deadLettered bool
	// tried says that a transaction with the event has failed. Its COMMIT may have arrived all
	// the same.
	tried bool
	// finished says that the event needs nothing more. A message that joins a finished delivery still
	// has to be acked.
	finished bool
	// answered is the number of messages that have been acked or nacked. These are the first of messages.
	answered int
}

func (g guarded) newDelivery(m *pubsub.Message) *delivery {
	e, err := eventing.ParseMessage(m.Data, m.Attributes)
	if err == nil && m.OrderingKey != "" && m.OrderingKey != e.AggregateID {
		err = eventing.Permanent(errKeyMismatch)
	}
	d := delivery{change: Change{Event: e}, invalid: err, messages: []*pubsub.Message{m}, received: time.Now()}
	if err == nil {
		d.change, d.invalid = g.read(e)
	}
	return &d
}

func (d *delivery) event() eventing.Event    { return d.change.Event }
func (d *delivery) id() uuid.UUID            { return d.change.Event.ID }
func (d *delivery) message() *pubsub.Message { return d.messages[0] }

// isUnknown reports whether this build does not know the event, and the event is not found to be
// poison.
func (d *delivery) isUnknown() bool { return errors.Is(d.invalid, ErrUnknown) && !d.poison }

// isEvent reports whether the message has an event, even one that cannot be used.
func (d *delivery) isEvent() bool { return d.id() != uuid.Nil }

// wasPutOff reports whether the event was put off, because of a lock or for another reason: see putOff.
func (d *delivery) wasPutOff() bool { return d.putOffs > 0 }

// endsBatch reports whether the event must be the last one of a batch after its aggregate was unblocked:
// see the method first of turns.
func (d *delivery) endsBatch() bool { return d.wasPutOff() || d.breaks > 0 }

// is reports whether e is the event of d. The caller has already compared the ids.
func (d *delivery) is(e eventing.Event) bool {
	return d.event().Key() == e.Key() && d.event().Version == e.Version
}

// key identifies the event's aggregate, within which events keep their order. A message that is
// no event has a key of its own.
func (d *delivery) key() string {
	if !d.isEvent() {
		return "message " + d.message().ID
	}
	return d.change.Event.Key()
}

// attempt is how many times the broker has delivered d, by its own count. It is 0 if the
// subscription has no dead-letter policy, because then the broker does not count.
func (d *delivery) attempt() int {
	most := 0
	for _, m := range d.messages {
		if m.DeliveryAttempt != nil {
			most = max(most, *m.DeliveryAttempt)
		}
	}
	return most
}

// takeUnanswered returns the messages that were neither acked nor nacked yet, and counts them as
// answered. The caller acks or nacks each of them.
func (d *delivery) takeUnanswered() []*pubsub.Message {
	leaving := d.messages[d.answered:]
	d.answered = len(d.messages)
	return leaving
}

// strip makes d a copy, because another delivery in hand has the same event. It removes the data and the
// attributes of d's messages, which then serve only to be acked or nacked. strip returns the load that is
// no longer needed.
func (d *delivery) strip() (freed load) {
	for _, m := range d.messages {
		before := loadOf(m)
		m.Data, m.Attributes = nil, nil
		freed = freed.plus(before.minus(loadOf(m)))
	}
	d.change.Event.Payload, d.change.Payload = nil, nil
	return freed
}

// in returns ctx with the trace of d's event.
func (d *delivery) in(ctx context.Context) context.Context { return d.event().InTrace(ctx) }

// logFor returns the log for lines about d. The caller logs the lines in the trace of d (method
// in).
func (c *Consumer) logFor(d *delivery) *slog.Logger {
	return c.logOf(d.event(), d.message().ID)
}

// logOf returns the log for lines about an event and the message that brought it. For a message
// that is no event, the lines have only the message's id.
func (c *Consumer) logOf(e eventing.Event, message string) *slog.Logger {
	return c.log.With(append(e.LogAttrs(), "message_id", message)...)
}

// age is how long ago the owner made the change.
func (d *delivery) age() time.Duration { return time.Since(d.change.Event.OccurredAt) }

// mergeDuplicates merges deliveries of the same event into one, and sorts batch by aggregate and
// version. All batches take the locks of the read model's rows in this order.
func mergeDuplicates(batch []*delivery) []*delivery {
	type keyed struct {
		*delivery
		key string
	}
	all := make([]keyed, len(batch))
	for i, d := range batch {
		all[i] = keyed{d, d.key()}
	}
	slices.SortStableFunc(all, func(a, b keyed) int {
		return cmp.Or(
			cmp.Compare(a.key, b.key),
			cmp.Compare(a.change.Event.Version, b.change.Event.Version),
			slices.Compare(a.change.Event.ID[:], b.change.Event.ID[:]))
	})
	out := batch[:0]
	for _, k := range all {
		if n := len(out); n > 0 && k.isEvent() && out[n-1].id() == k.id() && out[n-1].is(k.event()) {
			out[n-1].messages = append(out[n-1].messages, k.messages...)
			continue
		}
		out = append(out, k.delivery)
	}
	return out
}
