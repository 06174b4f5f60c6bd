package inbox

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/pkg/eventing"
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
	m := d.message()
	attrs := maps.Clone(m.Attributes)
	if attrs == nil {
		attrs = map[string]string{}
	}
	attrs[AttrDeadLetterReason] = eventing.Reason(reason.Error())
	attrs[AttrDeadLetterAttempts] = strconv.Itoa(attempts)
	_, err := t.client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    t.topic,
		Messages: []*pubsubpb.PubsubMessage{{Data: m.Data, Attributes: attrs, OrderingKey: m.OrderingKey}},
	})
	return err
}

// bury holds d's aggregate until d is in the dead letters: published, then
// written down, then acknowledged. A crash in between repeats a step: a dead
// letter may be there twice, none is lost. The rest flows meanwhile.
func (c *Consumer) bury(ctx context.Context, d *delivery, reason error, attempts int) {
	d.invalid = reason
	c.hold(ctx, d, func(ctx context.Context) {
		for failures := 1; ctx.Err() == nil; failures++ {
			err := c.buryOnce(ctx, d, reason, attempts)
			if err == nil {
				return
			}
			pause := failRetry.Delay(failures)
			c.log.WarnContext(ctx, "dead letter not written, trying again", append(d.logAttrs(),
				"error", err, "retry_in_ms", pause.Milliseconds())...)
			eventing.Sleep(ctx, pause, nil)
		}
	})
}

func (c *Consumer) buryOnce(ctx context.Context, d *delivery, reason error, attempts int) error {
	if !c.holds.lend(ctx) {
		return ctx.Err()
	}
	defer func() { <-c.holds.hands }()
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
