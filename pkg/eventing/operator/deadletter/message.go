package deadletter

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
)

const (
	// callTimeout bounds one call to the broker.
	callTimeout = 10 * time.Second
	// lease is the longest lease that Pub/Sub grants
	// (https://cloud.google.com/pubsub/docs/lease-management). A redrive of many events needs so
	// long a lease. Unsettled messages are given back long before the lease ends.
	lease = 10 * time.Minute
	// perCall is the largest number of messages in one call.
	perCall = 1000
)

// message is one leased message.
type message struct {
	consumer       string // the subscription of its consumer
	id, ackID, key string
	data           []byte
	attributes     map[string]string
	published      time.Time
	event          eventing.Event
	invalid        error // the reason why it is no event
}

// byTheBroker begins the reason of a dead letter that was written by the broker instead of the
// consumer.
const byTheBroker = "dead-lettered by the broker, after as many deliveries as its policy allows"

// why returns known, which is the reason that the inbox row or the message has. If the broker
// itself dead-lettered the message, the result says so first. The broker does not look at the
// event, so the event may be good.
func (m *message) why(known string) string {
	if _, ok := m.attributes[inbox.AttrDeadLetterReason]; ok {
		return known
	}
	if known == "" {
		return byTheBroker
	}
	return byTheBroker + "; the inbox says: " + known
}

// letter returns the dead letter as m alone describes it. copies is the number of its leased
// messages.
func (m *message) letter(copies int) Letter {
	attempts, _ := strconv.Atoi(m.attributes[inbox.AttrDeadLetterAttempts])
	return Letter{
		Subscription: m.consumer, EventID: m.event.ID, AggregateType: m.event.AggregateType, AggregateID: m.event.AggregateID,
		Version: m.event.Version, Type: m.event.Type, Status: "none",
		Reason: m.why(m.attributes[inbox.AttrDeadLetterReason]), Attempts: attempts, Since: m.published,
		MessageID: m.id, Messages: copies,
	}
}

// pull takes the messages that the broker has ready in all subscriptions, with
// a long lease. With an error it returns the messages that it has taken before.
func (q *Queue) pull(ctx context.Context) (all []*message, err error) {
	for _, consumer := range q.consumers {
		got, err := q.pullFrom(ctx, consumer)
		all = append(all, got...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

func (q *Queue) pullFrom(ctx context.Context, consumer string) ([]*message, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	res, err := q.client.Pull(ctx, &pubsubpb.PullRequest{
		Subscription: q.source(consumer), MaxMessages: perCall,
		ReturnImmediately: true, //nolint:staticcheck // a Pull that is cut off while it waits takes messages with it
	})
	if err != nil {
		return nil, fmt.Errorf("pull dead letters of %s: %w", consumer, err)
	}
	var messages []*message
	for _, r := range res.GetReceivedMessages() {
		p := r.GetMessage()
		m := &message{
			consumer: consumer, id: p.GetMessageId(), ackID: r.GetAckId(), key: p.GetOrderingKey(),
			data: p.GetData(), attributes: p.GetAttributes(), published: p.GetPublishTime().AsTime(),
		}
		m.event, m.invalid = eventing.ParseMessage(m.data, m.attributes)
		messages = append(messages, m)
	}
	return messages, q.extend(ctx, consumer, messages, lease)
}

// extend leases messages for d from now on.
func (q *Queue) extend(ctx context.Context, consumer string, messages []*message, d time.Duration) error {
	for chunk := range slices.Chunk(messages, perCall) {
		err := q.client.ModifyAckDeadline(ctx, &pubsubpb.ModifyAckDeadlineRequest{
			Subscription: q.source(consumer), AckIds: ackIDs(chunk), AckDeadlineSeconds: int32(d.Seconds()),
		})
		if err != nil {
			return fmt.Errorf("lease dead letters: %w", err)
		}
	}
	return nil
}

func ackIDs(messages []*message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ackID
	}
	return ids
}
