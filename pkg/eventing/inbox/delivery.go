package inbox

import (
	"cmp"
	"context"
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
	// invalid is the reason why it belongs in the dead letters.
	invalid  error
	messages []*pubsub.Message

	// received is when the first message came, until a span begins there.
	received time.Time
	// starts is how many times the event was applied without a recorded end, this time
	// included; 0 while this time is not recorded. It is the column begun.
	starts int
	// startedBefore says that an earlier process started to apply it and ended before the
	// result was recorded.
	startedBefore bool
	// gaps counts the gaps that it met.
	gaps int
	// diverged says that it was found to be of another history, and reported.
	diverged bool
	// lost says that its owner has no such event any more.
	lost bool
	// putOffs counts how many times it was put off because of another transaction's lock,
	// or because everything took too long.
	putOffs int
	// bisections counts the batches that failed with it and were halved.
	bisections int
	// poison says that its type is unknown and that the event is at fault, not this build.
	poison bool
	// tried says that a transaction with it has failed. Whether its COMMIT arrived may be
	// unknown.
	tried bool
	// finished says that it needs nothing more. answered is how many of its messages have
	// been acked or nacked: messages that join a finished delivery still need that.
	finished bool
	answered int
}

func (h guarded) newDelivery(m *pubsub.Message) *delivery {
	e, err := eventing.ParseMessage(m.Data, m.Attributes)
	if err == nil && m.OrderingKey != "" && m.OrderingKey != e.AggregateID {
		err = eventing.Permanent(errKeyMismatch)
	}
	d := delivery{change: Change{Event: e}, invalid: err, messages: []*pubsub.Message{m}, received: time.Now()}
	if err == nil {
		d.change, d.invalid = h.read(e)
	}
	return &d
}

func (d *delivery) event() eventing.Event    { return d.change.Event }
func (d *delivery) id() uuid.UUID            { return d.change.Event.ID }
func (d *delivery) message() *pubsub.Message { return d.messages[0] }

// isEvent reports whether the message has an event, even one that cannot be used.
func (d *delivery) isEvent() bool { return d.id() != uuid.Nil }

// is reports whether e, which has d's id, is d's event.
func (d *delivery) is(e eventing.Event) bool {
	return d.event().Key() == e.Key() && d.event().Version == e.Version
}

// key names the aggregate, within which events keep their order, or a message that is no
// event.
func (d *delivery) key() string {
	if !d.isEvent() {
		return "message " + d.message().ID
	}
	return d.change.Event.Key()
}

// attempt is how many times the broker has delivered d, by its own count. It is 0 if the
// subscription has no dead-letter policy: then the broker does not count.
func (d *delivery) attempt() int {
	most := 0
	for _, m := range d.messages {
		if m.DeliveryAttempt != nil {
			most = max(most, *m.DeliveryAttempt)
		}
	}
	return most
}

// takeUnanswered returns the messages that are in hand, for the one ack or nack that each
// of them gets.
func (d *delivery) takeUnanswered() []*pubsub.Message {
	leaving := d.messages[d.answered:]
	d.answered = len(d.messages)
	return leaving
}

// in is ctx within the trace of d's event.
func (d *delivery) in(ctx context.Context) context.Context { return d.event().InTrace(ctx) }

// logFor is the log of d; its lines are logged in the trace of d.
func (c *Consumer) logFor(d *delivery) *slog.Logger {
	return c.logOf(d.event(), d.message().ID)
}

// logOf is the log of an event and the message that brought it. A message that is no event
// has its id alone.
func (c *Consumer) logOf(e eventing.Event, message string) *slog.Logger {
	return c.log.With(append(e.LogAttrs(), "message_id", message)...)
}

// age is how long ago the owner made the change.
func (d *delivery) age() time.Duration { return time.Since(d.change.Event.OccurredAt) }

// mergeDuplicates merges deliveries of one event, and sorts the rest into the one order in
// which batches take their locks: by aggregate, each in version order.
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
