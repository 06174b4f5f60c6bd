package broker

import (
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/deploy/schemas"
	"example.com/lockstep/internal/topics"
)

const (
	videoTopic  = "projects/" + project + "/topics/" + topics.Video
	videoSchema = "projects/" + project + "/schemas/video-events"
)

func TestTopicsRefuseInvalidEvents(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
		t.Fatal(err)
	}
	publisher := pubsubpb.NewPublisherClient(dial(t, s.Addr()))
	dead := "projects/" + project + "/topics/" + topics.DeadLetters(topics.Subscription(topics.Video, topics.Catalog))
	for topic, want := range map[string]codes.Code{videoTopic: codes.InvalidArgument, dead: codes.OK} {
		_, err := publisher.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("hello")}}})
		if status.Code(err) != want {
			t.Errorf("nonsense to %s: %v, want %v", topic, err, want)
		}
	}
}

// TestProvisionBringsSchemasUpToDate starts from an outdated broker: a topic
// without a schema, and a schema that lacks a field.
func TestProvisionBringsSchemasUpToDate(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	conn := dial(t, s.Addr())
	if _, err := pubsubpb.NewPublisherClient(conn).CreateTopic(t.Context(), &pubsubpb.Topic{Name: videoTopic}); err != nil {
		t.Fatal(err)
	}
	today, err := schemas.Definition(topics.Video)
	if err != nil {
		t.Fatal(err)
	}
	create(t, conn, strings.Replace(today, "    string reason = 5;\n", "", 1))
	made, err := Provision(t.Context(), s.Addr(), project)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{videoSchema, videoTopic}, made.Changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	got, err := pubsubpb.NewSchemaServiceClient(conn).GetSchema(t.Context(), &pubsubpb.GetSchemaRequest{Name: videoSchema})
	if err != nil || got.GetDefinition() != today {
		t.Errorf("the schema is %v, %v", got, err)
	}
	_, err = pubsubpb.NewPublisherClient(conn).Publish(t.Context(), &pubsubpb.PublishRequest{
		Topic: videoTopic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("hello")}},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("nonsense to the old topic: %v", err)
	}
}

// Bounds on the revisions of a topic's schema stay, and are in the result.
func TestProvisionNamesTheBoundsOfASchema(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, s.Addr())
	schema, err := pubsubpb.NewSchemaServiceClient(conn).GetSchema(t.Context(), &pubsubpb.GetSchemaRequest{Name: videoSchema})
	if err != nil {
		t.Fatal(err)
	}
	last := schema.GetRevisionId()
	_, err = pubsubpb.NewPublisherClient(conn).UpdateTopic(t.Context(), &pubsubpb.UpdateTopicRequest{
		Topic: &pubsubpb.Topic{Name: videoTopic, SchemaSettings: &pubsubpb.SchemaSettings{
			Schema: videoSchema, Encoding: pubsubpb.Encoding_BINARY, LastRevisionId: last,
		}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"schema_settings"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := Provision(t.Context(), s.Addr(), project)
	if err != nil || len(made.Bounded) != 1 || !strings.Contains(made.Bounded[0], videoTopic) || !strings.Contains(made.Bounded[0], last) {
		t.Errorf("bounds %q, %v; want those of %s, with %s", made.Bounded, err, videoTopic, last)
	}
}

func TestProvisionKeepsAnIncompatibleSchema(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	create(t, dial(t, s.Addr()), `syntax = "proto3"; message Event { int64 event_id = 1; }`)
	_, err := Provision(t.Context(), s.Addr(), project)
	if err == nil || !strings.Contains(err.Error(), videoSchema) || !strings.Contains(err.Error(), "event_id") {
		t.Errorf("%v, want an error that names the schema and the field", err)
	}
}

func create(tb testing.TB, conn grpc.ClientConnInterface, definition string) {
	tb.Helper()
	_, err := pubsubpb.NewSchemaServiceClient(conn).CreateSchema(tb.Context(), &pubsubpb.CreateSchemaRequest{
		Parent: "projects/" + project, SchemaId: "video-events",
		Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition},
	})
	if err != nil {
		tb.Fatal(err)
	}
}

// schemaCount is the number of topics with a schema.
func schemaCount(tb testing.TB) (n int) {
	tb.Helper()
	names, _ := Topology()
	for _, topic := range names {
		definition, err := schemas.Definition(topic)
		if err != nil {
			tb.Fatal(err)
		}
		if definition != "" {
			n++
		}
	}
	return n
}
