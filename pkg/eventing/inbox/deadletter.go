package inbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/pubsub/v2"
	vkit "cloud.google.com/go/pubsub/v2/apiv1"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/txn"
)

// The attributes that a dead letter has besides the attributes of its message.
const (
	AttrDeadLetterReason   = "dead_letter_reason"
	AttrDeadLetterAttempts = "dead_letter_attempts"
)

// errKeyMismatch is the error for a message whose ordering key is not its aggregate id. Such a
// message has no order among the events of its aggregate, because the broker orders messages by
// key.
var errKeyMismatch = errors.New("ordering key differs from aggregate_id")

const deadLetterTimeout = 10 * time.Second

// deadLetters is the topic for messages that cannot be processed. The consumer publishes to the
// topic itself, because the broker's own dead-lettering gives no reason, and breaks the order of
// a key.
type deadLetters struct {
	client *vkit.TopicAdminClient
	topic  string
}

func (t deadLetters) publish(ctx context.Context, d *delivery, reason error, attempts int) error {
	ctx, cancel := context.WithTimeout(ctx, deadLetterTimeout)
	defer cancel()
	_, err := t.client.Publish(ctx, &pubsubpb.PublishRequest{
		Topic: t.topic, Messages: []*pubsubpb.PubsubMessage{deadLetterMessage(d.message(), reason.Error(), attempts)},
	})
	return err
}

// The limits of a dead letter. They follow from Pub/Sub's limits of a message
// (https://cloud.google.com/pubsub/quotas#resource_limits).
const (
	// maxAttributes is the greatest number of attributes.
	maxAttributes = 100
	// maxDeadLetterBytes is the greatest size of the data. It is below Pub/Sub's limit of 10 MB for a
	// request, and so leaves room for the attributes.
	maxDeadLetterBytes = 9_500_000
	// schemaPrefix begins the names of the attributes that Pub/Sub adds to the messages of a topic with a schema. Pub/Sub
	// reserves such names, and the topic of the dead letters has no schema.
	schemaPrefix = "googclient_schema"
)

// deadLetterMessage returns m with the reason why it is dead. A message at the limits of Pub/Sub
// has no room for the reason, so the broker would refuse the dead letter, and the consumer would
// try to publish it for ever. Therefore the dead letter has at most maxAttributes attributes, and
// the attributes of an event come first. It has none of those with schemaPrefix. Data beyond maxDeadLetterBytes is cut off.
func deadLetterMessage(m *pubsub.Message, reason string, attempts int) *pubsubpb.PubsubMessage {
	data := m.Data
	if len(data) > maxDeadLetterBytes {
		data = data[:maxDeadLetterBytes]
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
		if _, ok := attrs[key]; !ok && len(attrs) < maxAttributes && !strings.HasPrefix(key, schemaPrefix) {
			attrs[key] = value
		}
	}
	return &pubsubpb.PubsubMessage{Data: data, Attributes: attrs, OrderingKey: m.OrderingKey}
}

// deadLetter blocks d's aggregate until d is dead-lettered. d is held in the inbox, then published,
// then marked dead in the inbox, then acknowledged. A crash in between repeats the steps, so a dead
// letter may be there twice, but none is lost. If the mark cannot be written, only the mark is tried
// again. Other aggregates go on meanwhile. If another instance has applied d, d is only acknowledged.
func (c *Consumer) deadLetter(ctx context.Context, d *delivery, reason error, attempts int) {
	d.invalid = reason
	c.block(d.in(ctx), d, pendingDeadLetter, func(ctx context.Context) {
		for _, pause := range failRetry.Attempts(ctx) {
			err := c.deadLetterOnce(ctx, d, reason, attempts)
			if err == nil {
				return
			}
			c.logFor(d).WarnContext(ctx, "dead letter not written, trying again", "error", err, "retry_in_ms", pause.Milliseconds())
		}
	})
}

func (c *Consumer) deadLetterOnce(ctx context.Context, d *delivery, reason error, attempts int) error {
	if err := c.blocked.deadLetterSlots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.blocked.deadLetterSlots.Release(1)
	if !d.deadLettered {
		if done, err := c.holdBeforeLetter(ctx, d, reason); done || err != nil {
			return err
		}
		if err := c.dead.publish(ctx, d, reason, attempts); err != nil {
			return err
		}
		d.deadLettered = true
	}
	if d.isEvent() {
		if err := c.store.markDead(ctx, d, reason); err != nil {
			return err
		}
	}
	c.metrics.deadLettered(ctx)
	c.traceDeadLetter(ctx, d, reason)
	c.logFor(d).ErrorContext(ctx, "event dead-lettered", "reason", reason, "attempts", attempts, "topic", c.dead.topic)
	c.observeDeadLetter(ctx, d, reason, attempts)
	c.ack(ctx, d)
	return nil
}

// holdBeforeLetter makes d's inbox row held before a dead letter of d is published, because markDead turns
// only a held row dead. A row that is done or dead stays. holdBeforeLetter writes the row even if d.held is
// set, because an operator may have discarded an earlier dead letter of d since. done is true if d is done
// meanwhile, and so needs no dead letter.
//
// If another session has locked the row, holdBeforeLetter returns an error, and the caller tries again. The
// session may be an operator's that discards the earlier dead letter, and the row would stay discarded. If
// the row cannot be written for another reason, the dead letter is published all the same. If an operator
// then discards the earlier dead letter, or does so while the new one is published, the row stays
// discarded, and the new dead letter is in the topic alone.
func (c *Consumer) holdBeforeLetter(ctx context.Context, d *delivery, reason error) (done bool, err error) {
	if !d.isEvent() { // it has no row
		return false, nil
	}
	found, err := c.store.hold(ctx, reason.Error(), true, d)
	switch {
	case txn.IsLockTimeout(err):
		return false, err
	case err != nil:
		c.logFor(d).DebugContext(ctx, "event not written as held", "error", err)
	case found[d]:
		c.foundDone(ctx, d)
	}
	return found[d], nil
}
