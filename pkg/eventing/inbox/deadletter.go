package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// The attributes that a dead letter has besides its own.
const (
	AttrDeadLetterReason   = "dead_letter_reason"
	AttrDeadLetterAttempts = "dead_letter_attempts"
)

// errKeyMismatch is a message whose ordering key is not its aggregate's: order
// was never promised for it.
var errKeyMismatch = errors.New("ordering key differs from aggregate_id")

const deadLetterTimeout = 10 * time.Second

// deadLetters is the topic that poison goes to. The consumer writes it itself,
// because the broker's own dead-lettering knows no reason, and breaks the order
// of a key.
type deadLetters struct {
	client *vkit.TopicAdminClient
	topic  string
}

func (t deadLetters) publish(ctx context.Context, d *delivery, reason error, attempts int) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	_, err := t.client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: t.topic, Messages: []*pubsubpb.PubsubMessage{letter(d.message(), reason.Error(), attempts)},
	})
	return err
}

// What a message may have (https://cloud.google.com/pubsub/quotas#resource_limits).
// Bytes are under the limit of 10 MB for a request, with room for attributes.
const (
	maxAttributes  = 100
	maxLetterBytes = 9_500_000
)

// letter is m with why it is dead. What is at the limits has no room for that: so
// attributes that are no event's go first, and data beyond any event's is cut off.
// Refused by the broker, it would be tried again for ever.
func letter(m *pubsub.Message, reason string, attempts int) *pubsubpb.PubsubMessage {
	data := m.Data
	if len(data) > maxLetterBytes {
		data = data[:maxLetterBytes]
		reason = fmt.Sprintf("(cut off, of %d bytes) %s", len(m.Data), reason)
	}
	attrs := map[string]string{
		AttrDeadLetterReason: eventing.Reason(reason), AttrDeadLetterAttempts: strconv.Itoa(attempts),
	}
	for key := range (eventing.Event{TraceParent: "of the request", PreviousEventID: uuid.Max}).Message().GetAttributes() {
		if value, ok := m.Attributes[key]; ok {
			attrs[key] = value
		}
	}
	for key, value := range m.Attributes {
		if _, ok := attrs[key]; !ok && len(attrs) < maxAttributes {
			attrs[key] = value
		}
	}
	return &pubsubpb.PubsubMessage{Data: data, Attributes: attrs, OrderingKey: m.OrderingKey}
}

// bury holds d's aggregate until d is in the dead letters: published, then
// written down, then acknowledged. A crash in between repeats a step: a dead
// letter may be there twice, none is lost. The rest flows meanwhile.
func (c *Consumer) bury(ctx context.Context, d *delivery, reason error, attempts int) {
	d.invalid = reason
	c.hold(ctx, d, deadLetter, func(ctx context.Context) {
		for failures := 1; ctx.Err() == nil; failures++ {
			err := c.buryOnce(ctx, d, reason, attempts)
			if err == nil {
				return
			}
			pause := failRetry.Delay(failures)
			c.log.WarnContext(ctx, "dead letter not written, trying again", append(d.logAttrs(),
				"error", err, "retry_in_ms", pause.Milliseconds())...)
			backoff.Sleep(ctx, pause, nil)
		}
	})
}

func (c *Consumer) buryOnce(ctx context.Context, d *delivery, reason error, attempts int) error {
	if !c.holds.buriers.lend(ctx) {
		return ctx.Err()
	}
	defer c.holds.buriers.giveBack()
	err := c.dead.publish(ctx, d, reason, attempts)
	if err == nil && d.isEvent() {
		err = c.store.die(ctx, d, reason)
	}
	if err != nil {
		return err
	}
	c.metrics.buried(ctx)
	c.log.ErrorContext(ctx, "event dead-lettered", append(d.logAttrs(), "reason", reason, "attempts", attempts, "topic", c.dead.topic)...)
	c.ack(ctx, d)
	return nil
}
