package conformance

import (
	"fmt"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
)

const quotas = "https://cloud.google.com/pubsub/quotas"

func limits() area {
	source := quotas + "#resource_limits"
	return area{"publish limits", []Behaviour{
		{Name: "a publish without messages is refused", Source: rpc("PublishRequest"), try: publishNeedsMessages},
		{Name: "a message without data and attributes is refused", Source: rpc("PubsubMessage"), try: messageNeedsContent},
		{Name: "a publish holds 1,000 messages and no more", Source: source, try: publishCountIsLimited},
		{Name: "a publish holds 10 MB and no more", Source: source, try: publishSizeIsLimited},
		{Name: "a message has 100 attributes and no more", Source: source, try: attributeCountIsLimited},
		{Name: "an attribute's key has 256 bytes and no more", Source: source, try: attributeKeyIsLimited},
		{Name: "an attribute's value has 1,024 bytes and no more", Source: source, try: attributeValueIsLimited},
		{Name: "an attribute's key does not begin with goog", Source: page("publisher"), try: attributePrefixIsReserved},
		{Name: "an ordering key has 1,024 bytes and no more", Source: source, try: orderingKeyIsLimited},
		{Name: "a publish has one ordering key for all messages", Source: rpc("PubsubMessage"), try: publishHasOneKey},
		{Name: "a refused publish delivers no message", Source: page("reference/error-codes"), try: refusedPublishLeavesNothing},
	}}
}

// accepts publishes the messages within and then the messages beyond. The server must accept the
// first and refuse the second.
func (t *trial) accepts(within, beyond []*pubsubpb.PubsubMessage) {
	topic := t.topic()
	_, err := t.tryPublish(topic, within...)
	t.code("publish within the limit", err, codes.OK)
	_, err = t.tryPublish(topic, beyond...)
	t.code("publish beyond the limit", err, codes.InvalidArgument)
}

func one(m *pubsubpb.PubsubMessage) []*pubsubpb.PubsubMessage { return []*pubsubpb.PubsubMessage{m} }

func publishNeedsMessages(t *trial) {
	_, err := t.tryPublish(t.topic())
	t.code("publish", err, codes.InvalidArgument)
}

func messageNeedsContent(t *trial) {
	_, err := t.tryPublish(t.topic(), &pubsubpb.PubsubMessage{})
	t.code("publish", err, codes.InvalidArgument)
	_, err = t.tryPublish(t.topic(), &pubsubpb.PubsubMessage{OrderingKey: "key"})
	t.code("publish with a key", err, codes.InvalidArgument)
}

func publishCountIsLimited(t *trial) {
	messages := make([]*pubsubpb.PubsubMessage, 1001)
	for i := range messages {
		messages[i] = text("a")
	}
	t.accepts(messages[:1000], messages)
}

func publishSizeIsLimited(t *trial) {
	// The page may mean 10^7 or 10 · 2^20 bytes. One size is well below both numbers, and the other
	// is well above both. Both sizes leave room for the frame.
	within, beyond := strings.Repeat("a", 9_900_000), strings.Repeat("a", 10_600_000)
	t.accepts(one(text(within)), one(text(beyond)))
}

func attributes(n int) *pubsubpb.PubsubMessage {
	m := &pubsubpb.PubsubMessage{Data: []byte("a"), Attributes: make(map[string]string)}
	for i := range n {
		m.Attributes[fmt.Sprintf("k%d", i)] = "v"
	}
	return m
}

func attributeCountIsLimited(t *trial) { t.accepts(one(attributes(100)), one(attributes(101))) }

func attributeKeyIsLimited(t *trial) {
	t.accepts(one(attributed("a", strings.Repeat("k", 256), "v")), one(attributed("a", strings.Repeat("k", 257), "v")))
}

func attributeValueIsLimited(t *trial) {
	t.accepts(one(attributed("a", "k", strings.Repeat("v", 1024))), one(attributed("a", "k", strings.Repeat("v", 1025))))
}

func attributePrefixIsReserved(t *trial) {
	t.accepts(one(attributed("a", "gook", "v")), one(attributed("a", "googk", "v")))
}

func orderingKeyIsLimited(t *trial) {
	t.accepts(texts(strings.Repeat("k", 1024), "a"), texts(strings.Repeat("k", 1025), "a"))
}

func publishHasOneKey(t *trial) {
	t.accepts(texts("key", "a", "b"), append(texts("one", "a"), texts("other", "b")...))
}

func refusedPublishLeavesNothing(t *trial) {
	topic := t.topic()
	s := t.stream(t.subscription(topic))
	_, err := t.tryPublish(topic, text("refused"), &pubsubpb.PubsubMessage{})
	t.code("publish with an empty message", err, codes.InvalidArgument)
	t.publish(topic, text("a"))
	s.want("a")
	s.quiet(silence)
}
