package conformance

import (
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// text returns a message that holds s.
func text(s string) *pubsubpb.PubsubMessage { return &pubsubpb.PubsubMessage{Data: []byte(s)} }

// texts returns messages with the ordering key key. "" means no key.
func texts(key string, data ...string) []*pubsubpb.PubsubMessage {
	messages := make([]*pubsubpb.PubsubMessage, len(data))
	for i, s := range data {
		messages[i] = &pubsubpb.PubsubMessage{Data: []byte(s), OrderingKey: key}
	}
	return messages
}

// attributed returns a message that holds s and has one attribute.
func attributed(s, key, value string) *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: []byte(s), Attributes: map[string]string{key: value}}
}

// publish sends the messages in one request and returns their ids.
func (t *trial) publish(topic string, messages ...*pubsubpb.PubsubMessage) []string {
	ids, err := t.tryPublish(topic, messages...)
	t.must(err)
	return ids
}

func (t *trial) tryPublish(topic string, messages ...*pubsubpb.PubsubMessage) ([]string, error) {
	ctx, cancel := t.patiently()
	defer cancel()
	response, err := t.publisher.Publish(ctx, &pubsubpb.PublishRequest{Topic: topic, Messages: messages})
	return response.GetMessageIds(), err
}

// delivery is one delivery of a message.
type delivery struct {
	*pubsubpb.ReceivedMessage

	at time.Time
}

func (d delivery) data() string { return string(d.GetMessage().GetData()) }

func deliveries(messages []*pubsubpb.ReceivedMessage) []delivery {
	now := time.Now()
	all := make([]delivery, len(messages))
	for i, m := range messages {
		all[i] = delivery{m, now}
	}
	return all
}

// data returns the data of the deliveries, in their order.
func data(all []delivery) []string {
	texts := make([]string, len(all))
	for i, d := range all {
		texts[i] = d.data()
	}
	return texts
}

func ackIDs(all []delivery) []string {
	ids := make([]string, len(all))
	for i, d := range all {
		ids[i] = d.GetAckId()
	}
	return ids
}

func (t *trial) ack(subscription string, all ...delivery) {
	t.must(t.tryAck(subscription, ackIDs(all)...))
}

func (t *trial) tryAck(subscription string, ids ...string) error {
	_, err := t.subscriber.Acknowledge(t.ctx, &pubsubpb.AcknowledgeRequest{Subscription: subscription, AckIds: ids})
	return err
}

func (t *trial) nack(subscription string, all ...delivery) { t.extend(subscription, 0, all...) }

// extend sets the deadlines of the deliveries to the given number of seconds
// from now.
func (t *trial) extend(subscription string, seconds int32, all ...delivery) {
	t.must(t.tryExtend(subscription, seconds, ackIDs(all)...))
}

func (t *trial) tryExtend(subscription string, seconds int32, ids ...string) error {
	_, err := t.subscriber.ModifyAckDeadline(t.ctx,
		&pubsubpb.ModifyAckDeadlineRequest{Subscription: subscription, AckIds: ids, AckDeadlineSeconds: seconds})
	return err
}

// pull sends unary pulls until it has received n messages.
func (t *trial) pull(subscription string, n int) []delivery {
	ctx, cancel := t.patiently()
	defer cancel()
	var all []delivery
	for len(all) < n {
		response, err := t.subscriber.Pull(ctx, &pubsubpb.PullRequest{Subscription: subscription, MaxMessages: int32(n - len(all))})
		if err != nil {
			t.failf("pulled %q, then: %w; want %d messages", data(all), err, n)
		}
		all = append(all, deliveries(response.GetReceivedMessages())...)
	}
	return all
}
