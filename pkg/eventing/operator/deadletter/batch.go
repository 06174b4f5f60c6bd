package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// maxBytes bounds the message data that a Batch keeps in memory.
	maxBytes = 64 << 20
	// pollInterval is the pause after an empty pull.
	pollInterval = 200 * time.Millisecond
	// maxEmptyPulls is the number of empty pulls in a row that mean an empty subscription. A single
	// empty pull may come from a server that has no message ready.
	maxEmptyPulls = 3
	// quiet is the time without a message after which a Batch gives up waiting for
	// the messages of dead inbox rows.
	quiet = 2 * time.Second
)

// Batch holds the dead letters with a pulled message, and the dead letters that have only an inbox
// row. Only one goroutine may use it. Release it after use.
type Batch struct {
	queue *Queue
	// Letters are in the order of a redrive: by aggregate, and within an aggregate by version.
	Letters []Letter
	// Partial is true if there may be more dead letters than the Batch holds. Settle the letters of this
	// Batch first.
	Partial bool
	// Unread are dead letters of the inbox whose messages this Batch has not pulled, because it has reached its limits.
	// They cannot be settled with this Batch, and are in no order.
	Unread   []Letter
	full     bool                  // a limit is reached, so that messages may be left in the subscription
	messages map[string][]*message // by Letter.place
}

// Collect leases all dead letters, up to MaxLetters and 64 MiB. It takes about half a second,
// because the broker may have more messages after an empty answer, so Collect asks again. It takes
// two seconds if there are inbox rows whose message does not arrive.
func (q *Queue) Collect(ctx context.Context) (*Batch, error) {
	b := &Batch{queue: q, messages: map[string][]*message{}}
	err := b.pull(ctx)
	if err == nil {
		err = b.match(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Release(ctx))
	}
	return b, nil
}

// pull takes messages until every dead row has its message and the broker
// appears empty, or until no message has arrived for a while.
func (b *Batch) pull(ctx context.Context) error {
	dead, err := b.queue.rows(ctx, nil)
	if err != nil {
		return err
	}
	b.Partial = len(dead) >= MaxLetters
	missing := map[string]bool{}
	for _, l := range dead {
		missing[l.place()] = true
	}
	count, bytes := 0, 0
	last := time.Now()
	for empty := 0; ; {
		got, err := b.queue.pull(ctx)
		count += len(got)
		bytes += b.keep(got, missing) // even with an error, so that Release gives them back
		if err != nil {
			return err
		}
		if len(got) > 0 {
			empty, last = 0, time.Now()
			if count >= MaxLetters || bytes >= maxBytes {
				b.Partial, b.full = true, true
				return nil
			}
			continue
		}
		empty++
		if empty >= maxEmptyPulls && len(missing) == 0 || time.Since(last) > quiet {
			return nil
		}
		if !backoff.Sleep(ctx, pollInterval, nil) {
			return fmt.Errorf("pull dead letters: %w", context.Cause(ctx))
		}
	}
}

// keep adds messages by their place, and removes their places from missing. It returns the size of
// the messages' data.
func (b *Batch) keep(messages []*message, missing map[string]bool) (bytes int) {
	for _, m := range messages {
		place := m.letter(0).place()
		b.messages[place] = append(b.messages[place], m)
		delete(missing, place)
		bytes += len(m.data)
	}
	return bytes
}

// match builds the dead letters from rows and messages.
func (b *Batch) match(ctx context.Context) error {
	var named []*message
	for _, messages := range b.messages {
		if messages[0].invalid == nil {
			named = append(named, messages[0])
		}
	}
	rows, err := b.queue.rows(ctx, named)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, l := range rows {
		messages := b.messages[l.place()]
		switch {
		case len(messages) > 0:
		case l.Status != "dead":
			continue // a row of another event that has the id of a leased message
		case b.full:
			b.Unread = append(b.Unread, l)
			continue
		}
		known[l.place()] = true
		if len(messages) > 0 {
			l.MessageID, l.Messages = messages[0].id, len(messages)
			l.Reason = messages[0].why(l.Reason)
		}
		b.Letters = append(b.Letters, l)
	}
	for place, messages := range b.messages {
		if !known[place] {
			b.Letters = append(b.Letters, messages[0].letter(len(messages)))
		}
	}
	slices.SortFunc(b.Letters, inOrder)
	return nil
}

// All returns Letters and Unread together, in the order of Letters.
func (b *Batch) All() []Letter {
	return slices.SortedFunc(slices.Values(slices.Concat(b.Letters, b.Unread)), inOrder)
}

func inOrder(one, other Letter) int {
	return cmp.Or(
		cmp.Compare(one.key(), other.key()),
		cmp.Compare(one.Version, other.Version),
		cmp.Compare(one.place(), other.place()))
}

func (l Letter) key() string { return eventing.Key(l.AggregateType, l.AggregateID) }

// first returns one message of l; nil if none is leased.
func (b *Batch) first(l Letter) *message {
	if messages := b.messages[l.place()]; len(messages) > 0 {
		return messages[0]
	}
	return nil
}

// Content returns the data and attributes of the message of l, or nil, nil if no message is leased.
func (b *Batch) Content(l Letter) (data []byte, attributes map[string]string) {
	if m := b.first(l); m != nil {
		return m.data, m.attributes
	}
	return nil, nil
}

// Aggregate returns the aggregate that l is about. For a message that is no event, it returns the
// aggregate that the attributes name, if any.
func (b *Batch) Aggregate(l Letter) (aggregateType, id string) {
	if m := b.first(l); m != nil && m.invalid != nil {
		return eventing.Storable(m.attributes[eventing.AttrAggregateType]), eventing.Storable(m.attributes[eventing.AttrAggregateID])
	}
	return l.AggregateType, l.AggregateID
}

// acknowledge takes the messages of l from the subscription. If acknowledge fails, the messages come back.
func (b *Batch) acknowledge(ctx context.Context, l Letter) error {
	messages := b.messages[l.place()]
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	req := &pubsubpb.AcknowledgeRequest{Subscription: b.queue.source(l.Subscription), AckIds: ackIDs(messages)}
	if err := b.queue.client.Acknowledge(ctx, req); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	delete(b.messages, l.place())
	return nil
}

// Release gives back the unsettled messages. It also works when ctx has ended.
func (b *Batch) Release(ctx context.Context) error {
	rest := map[string][]*message{}
	for _, messages := range b.messages {
		rest[messages[0].consumer] = append(rest[messages[0].consumer], messages...)
	}
	clear(b.messages)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	var errs []error
	for consumer, messages := range rest {
		errs = append(errs, b.queue.extend(ctx, consumer, messages, 0))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w (what is still leased comes back after %s)", err, lease)
	}
	return nil
}
