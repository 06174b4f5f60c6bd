package inbox

import (
	"cmp"
	"slices"
	"time"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/pkg/eventing"
)

// delivery is an event in hand, with every message that brought it.
type delivery struct {
	event    eventing.Event
	invalid  error // why the message is no event
	messages []*pubsub.Message
}

func newDelivery(m *pubsub.Message) *delivery {
	e, err := eventing.ParseMessage(m.Data, m.Attributes)
	if err == nil && m.OrderingKey != "" && m.OrderingKey != e.AggregateID {
		err = eventing.Permanent(errKeyMismatch)
	}
	return &delivery{event: e, invalid: err, messages: []*pubsub.Message{m}}
}

func (d *delivery) message() *pubsub.Message { return d.messages[0] }

func (d *delivery) ack() {
	for _, m := range d.messages {
		m.Ack()
	}
}

func (d *delivery) nack() {
	for _, m := range d.messages {
		m.Nack()
	}
}

func (d *delivery) logAttrs() []any {
	return append(d.event.LogAttrs(), "message_id", d.message().ID)
}

// age is how long ago the owner made the change.
func (d *delivery) age() time.Duration { return time.Since(d.event.OccurredAt) }

// fold merges deliveries of one event and puts the rest into the one order in
// which batches take their locks: by aggregate, each in version order. Messages
// that are no events come first.
func fold(batch []*delivery) []*delivery {
	slices.SortStableFunc(batch, func(a, b *delivery) int {
		return cmp.Or(
			cmp.Compare(a.event.Key(), b.event.Key()),
			cmp.Compare(a.event.Version, b.event.Version),
			slices.Compare(a.event.ID[:], b.event.ID[:]))
	})
	out := batch[:0]
	for _, d := range batch {
		if n := len(out); n > 0 && d.invalid == nil && out[n-1].event.ID == d.event.ID {
			out[n-1].messages = append(out[n-1].messages, d.messages...)
			continue
		}
		out = append(out, d)
	}
	return out
}
