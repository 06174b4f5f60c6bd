package inbox

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
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

// maxReasonBytes is under Pub/Sub's 1,024 for an attribute's value.
const maxReasonBytes = 1000

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
	attrs[AttrDeadLetterReason] = truncate(reason.Error())
	attrs[AttrDeadLetterAttempts] = strconv.Itoa(attempts)
	_, err := t.client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic:    t.topic,
		Messages: []*pubsubpb.PubsubMessage{{Data: m.Data, Attributes: attrs, OrderingKey: m.OrderingKey}},
	})
	return err
}

func truncate(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) > maxReasonBytes {
		s = strings.ToValidUTF8(s[:maxReasonBytes], "")
	}
	return s
}

// bury sends d to the dead letters, then writes that down, then acknowledges it.
// A crash in between repeats a step: a dead letter may be there twice, none is
// lost. When a step fails d is held and buried again later.
func (c *Consumer) bury(ctx context.Context, d *delivery, reason error, attempts int) {
	err := c.dead.publish(ctx, d, reason, attempts)
	if err == nil && d.event.ID != noEvent {
		err = c.store.die(ctx, d, reason)
	}
	if err == nil {
		c.metrics.buried(ctx)
		c.log.ErrorContext(ctx, "event dead-lettered", append(d.logAttrs(), "reason", reason, "attempts", attempts, "topic", c.dead.topic)...)
		d.ack()
		return
	}
	d.invalid = reason
	pause := failRetry.Delay(maxAttempts)
	c.log.WarnContext(ctx, "dead letter not written, trying again", append(d.logAttrs(), "error", err, "retry_in_ms", pause.Milliseconds())...)
	c.holds.begin(ctx, d, func(ctx context.Context) { eventing.Sleep(ctx, pause, nil) })
}
