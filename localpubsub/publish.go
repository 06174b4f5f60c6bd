package localpubsub

import (
	"context"
	"maps"
	"strings"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/localpubsub/internal/resource"
)

// The limits of one publish (https://cloud.google.com/pubsub/quotas#resource_limits).
const (
	maxMessages       = 1000
	maxPublish        = 10_000_000 // bytes of messages
	maxAttributes     = 100
	maxAttributeKey   = 256
	maxAttributeValue = 1024
	maxOrderingKey    = 1024
)

// Attributes whose key begins with reservedPrefix are reserved for the service. Client libraries
// may add attributes whose key begins with clientPrefix.
const (
	reservedPrefix = "goog"
	clientPrefix   = "googclient_"
)

// Publish accepts all messages of a request or none. If one message breaks a
// limit or the topic's schema, the whole request is refused.
func (p publisher) Publish(_ context.Context, req *pubsubpb.PublishRequest) (*pubsubpb.PublishResponse, error) {
	found, err := p.topic(req.GetTopic())
	if err != nil {
		return nil, err
	}
	if err := checkMessages(req.GetMessages()); err != nil {
		return nil, err
	}
	if err := p.checkSchema(found, req.GetMessages()); err != nil {
		return nil, err
	}
	if p.store.full() {
		return nil, status.Errorf(codes.ResourceExhausted, "the server keeps %d bytes of messages, its limit", p.store.limit)
	}
	ids, err := found.publish(req.GetMessages())
	if err != nil {
		return nil, err
	}
	return &pubsubpb.PublishResponse{MessageIds: ids}, nil
}

func checkMessages(messages []*pubsubpb.PubsubMessage) error {
	if n := len(messages); n == 0 || n > maxMessages {
		return resource.Invalid("messages", "%d messages, a request has 1 to %d", n, maxMessages)
	}
	size := 0
	for i, m := range messages {
		size += proto.Size(m)
		if why := wrong(m); why != "" {
			return resource.Invalid("messages", "message %d: %s", i, why)
		}
		if m.GetOrderingKey() != messages[0].GetOrderingKey() {
			return resource.Invalid("messages", "message %d: its ordering key differs from that of message 0; a request has one", i)
		}
	}
	if size > maxPublish {
		return resource.Invalid("messages", "%d bytes, a request has at most %d", size, maxPublish)
	}
	return nil
}

// wrong describes the first violation of a limit that it finds in a message. It returns "" if the
// message is valid.
func wrong(m *pubsubpb.PubsubMessage) string {
	switch {
	case len(m.GetData()) == 0 && len(m.GetAttributes()) == 0:
		return "a message needs data or an attribute"
	case len(m.GetAttributes()) > maxAttributes:
		return "more than 100 attributes"
	case len(m.GetOrderingKey()) > maxOrderingKey:
		return "an ordering key of more than 1024 bytes"
	}
	for key, value := range m.GetAttributes() {
		switch {
		case key == "":
			return "an attribute without a key"
		case len(key) > maxAttributeKey:
			return "an attribute key of more than 256 bytes"
		case len(value) > maxAttributeValue:
			return "attribute " + key + ": more than 1024 bytes"
		case strings.HasPrefix(key, reservedPrefix) && !strings.HasPrefix(key, clientPrefix):
			return "attribute " + key + ": names that begin with goog are reserved"
		}
	}
	return ""
}

// checkSchema validates the messages against the topic's schema. It adds the attributes that name
// the revision of the schema to the messages.
func (s *Server) checkSchema(t *topic, messages []*pubsubpb.PubsubMessage) error {
	t.mu.Lock()
	settings := t.config.GetSchemaSettings()
	t.mu.Unlock()
	if settings == nil {
		return nil
	}
	for _, m := range messages {
		attributes, err := s.schemas.Check(settings, m.GetData())
		if err != nil {
			return err
		}
		if m.Attributes == nil {
			m.Attributes = make(map[string]string, len(attributes))
		}
		maps.Copy(m.GetAttributes(), attributes)
	}
	return nil
}
