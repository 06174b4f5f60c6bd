package localpubsub_test

import (
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/localpubsub"
)

// TestPublishToATopicWithASchema follows a schema that loses a field.
func TestPublishToATopicWithASchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	schemas := pubsubpb.NewSchemaServiceClient(w.conn)
	settings := &pubsubpb.SchemaSettings{Schema: "projects/p/schemas/event", Encoding: pubsubpb.Encoding_JSON}
	topic := &pubsubpb.Topic{Name: topicName, SchemaSettings: settings}
	_, err := w.CreateTopic(w.context(), topic)
	wantCode(t, err, codes.NotFound)

	first, err := schemas.CreateSchema(w.context(), &pubsubpb.CreateSchemaRequest{Parent: "projects/p", SchemaId: "event", Schema: &pubsubpb.Schema{
		Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: `syntax = "proto3"; message Event { string title = 1; }`,
	}})
	wantCode(t, err, codes.OK)
	_, err = w.CreateTopic(w.context(), topic)
	wantCode(t, err, codes.OK)
	w.subscribe(&pubsubpb.Subscription{})
	w.publish("", `{"title": "x"}`)
	second, err := schemas.CommitSchema(w.context(), &pubsubpb.CommitSchemaRequest{Name: first.GetName(), Schema: &pubsubpb.Schema{
		Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: `syntax = "proto3"; message Event {}`,
	}})
	wantCode(t, err, codes.OK)
	w.publish("", `{}`, `{"title": "y"}`)

	settings.FirstRevisionId = second.GetRevisionId()
	mask := &fieldmaskpb.FieldMask{Paths: []string{"schema_settings"}}
	_, err = w.UpdateTopic(w.context(), &pubsubpb.UpdateTopicRequest{Topic: topic, UpdateMask: mask})
	wantCode(t, err, codes.OK)
	tooOld := &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{{Data: []byte(`{}`)}, {Data: []byte(`{"title": "z"}`)}}}
	_, err = w.Publish(w.context(), tooOld)
	wantCode(t, err, codes.InvalidArgument)

	received := w.pull()
	wantTexts(t, received, `{"title": "x"}`, `{}`, `{"title": "y"}`)
	for i, revision := range []*pubsubpb.Schema{first, second, first} {
		attributes := received[i].GetMessage().GetAttributes()
		if attributes["googclient_schemaname"] != first.GetName() || attributes["googclient_schemaencoding"] != "JSON" ||
			attributes["googclient_schemarevisionid"] != revision.GetRevisionId() {
			t.Errorf("message %d has %v, want revision %s", i, attributes, revision.GetRevisionId())
		}
	}
	_, err = schemas.DeleteSchema(w.context(), &pubsubpb.DeleteSchemaRequest{Name: first.GetName()})
	wantCode(t, err, codes.OK)
	_, err = w.Publish(w.context(), tooOld)
	wantCode(t, err, codes.NotFound)
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Fatalf("%v, want %v", err, want)
	}
}

func TestSubscriptionFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.topic()
	_, err := w.CreateSubscription(w.context(), &pubsubpb.Subscription{Name: subscriptionName, Topic: topicName, Filter: "kind = 1"})
	wantCode(t, err, codes.InvalidArgument)
	w.subscribe(&pubsubpb.Subscription{Filter: `attributes.kind = "a" OR NOT attributes:kind`})
	_, err = w.Publish(w.context(), &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{
		{Data: []byte("1"), Attributes: map[string]string{"kind": "a"}}, {Data: []byte("2"), Attributes: map[string]string{"kind": "b"}}, {Data: []byte("3")},
	}})
	wantCode(t, err, codes.OK)
	wantTexts(t, w.pull(), "1", "3")
}

// TestPublishFarTooLarge: a publish far beyond its limit is INVALID_ARGUMENT, as in Google's service. gRPC's own answer would be
// RESOURCE_EXHAUSTED, which Google's clients for Node.js and Go repeat until their deadline.
func TestPublishFarTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	w.topic()
	for _, size := range []int{10_000_001, 12_500_000, 40_000_000} {
		_, err := w.Publish(w.context(), &pubsubpb.PublishRequest{
			Topic: topicName, Messages: []*pubsubpb.PubsubMessage{{Data: make([]byte, size)}},
		})
		wantCode(t, err, codes.InvalidArgument)
	}
}

// TestFullServerRefusesMessages: a server that keeps as many bytes as it may takes messages again when some are gone.
func TestFullServerRefusesMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{MaxBytes: 2000})
	w.subscribe(&pubsubpb.Subscription{})
	req := &pubsubpb.PublishRequest{Topic: topicName, Messages: []*pubsubpb.PubsubMessage{{Data: make([]byte, 2000)}}}
	for _, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
		_, err := w.Publish(w.context(), req)
		wantCode(t, err, want)
	}
	w.ack(w.pull()...)
	_, err := w.Publish(w.context(), req)
	wantCode(t, err, codes.OK)
}
