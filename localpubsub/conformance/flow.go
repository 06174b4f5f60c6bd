package conformance

import (
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

func flowControl() area {
	source := rpc("StreamingPullRequest")
	return area{"flow control", []Behaviour{
		{Name: "a stream holds no more messages than its limit", Source: source, try: flowCountsMessages},
		{Name: "a stream holds no more bytes than its limit", Source: source, try: flowCountsBytes},
		{Name: "a message larger than the stream's limit is delivered alone", Source: source, try: flowLetsOneThrough},
		{Name: "a nack makes room on a stream", Source: source, try: flowEndsWithNack},
		{Name: "an ordered stream holds no more messages than its limit", Source: source, try: flowCountsOrdered},
		{
			Name:   "a stream that joins gets the messages that the others have no room for",
			Source: page("flow-control-messages"), try: flowSharesBacklog,
		},
	}}
}

func flowCountsMessages(t *trial) {
	topic := t.topic()
	s := t.limited(t.subscription(topic), 3)
	t.publish(topic, texts("", "a", "b", "c", "d", "e", "f")...)
	held := s.next(3)
	s.quiet(silence)
	s.ack(held[:2]...)
	s.next(2)
	s.quiet(silence)
}

func flowCountsBytes(t *trial) {
	topic := t.topic()
	s := t.open(&pubsubpb.StreamingPullRequest{Subscription: t.subscription(topic), MaxOutstandingBytes: 2500})
	kilo := strings.Repeat("a", 1000)
	t.publish(topic, texts("", kilo, kilo, kilo, kilo, kilo, kilo)...)
	// The documentation says that the server stops "when there are max_outstanding_bytes or more".
	// So the server still sends the third message.
	held := s.next(3)
	s.quiet(silence)
	s.ack(held...)
	s.next(3)
}

func flowLetsOneThrough(t *trial) {
	topic := t.topic()
	s := t.open(&pubsubpb.StreamingPullRequest{Subscription: t.subscription(topic), MaxOutstandingBytes: 1000})
	large := strings.Repeat("a", 5000)
	t.publish(topic, texts("", large, large)...)
	first := s.one()
	s.quiet(silence)
	s.ack(first)
	s.one()
}

func flowEndsWithNack(t *trial) {
	topic := t.topic()
	s := t.limited(t.subscription(topic), 1)
	t.publish(topic, texts("", "a", "b")...)
	first := s.one()
	s.quiet(silence)
	s.nack(first)
	second := s.one()
	s.ack(second)
	third := s.one()
	t.sameSet("messages in the end", data([]delivery{second, third}), []string{"a", "b"})
}

func flowCountsOrdered(t *trial) {
	topic := t.topic()
	s := t.limited(t.ordered(topic), 3)
	t.publish(topic, texts("one", "a1", "a2", "a3")...)
	t.publish(topic, texts("two", "b1", "b2", "b3")...)
	held := s.next(3)
	s.quiet(silence)
	s.ack(held...)
	s.next(3)
}

func flowSharesBacklog(t *trial) {
	topic := t.topic()
	subscription := t.subscription(topic)
	t.publish(topic, texts("", "a", "b", "c", "d", "e", "f")...)
	first := t.limited(subscription, 3)
	held := first.next(3)
	second := t.limited(subscription, 10)
	rest := second.next(3)
	t.sameSet("messages of both", append(data(held), data(rest)...), []string{"a", "b", "c", "d", "e", "f"})
	first.quiet(silence)
}
