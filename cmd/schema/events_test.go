package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/dynamicpb"

	"example.com/lockstep/deploy/schemas"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/localpubsub"
	engagementeventsv1 "example.com/lockstep/proto/engagement/events/v1"
	videoeventsv1 "example.com/lockstep/proto/video/events/v1"
)

const (
	events  = 1_000
	project = "projects/p"
)

// published are the types that the services marshal, by topic.
var published = map[string]proto.Message{
	topics.Video:      &videoeventsv1.Event{},
	topics.Engagement: &engagementeventsv1.Event{},
}

func TestEveryTopicHasEvents(t *testing.T) {
	t.Parallel()
	if len(published) != len(topics.All) {
		t.Errorf("%d types in published, want one for each of the %d topics", len(published), len(topics.All))
	}
	for _, topic := range topics.Names() {
		if published[topic] == nil {
			t.Errorf("published has no type of %s", topic)
		}
		if text, err := schemas.Definition(topic); text == "" || err != nil {
			t.Errorf("%s has no schema: %v", topic, err)
		}
	}
}

// TestEventsFitTheirSchema marshals random events as the services do, and reads
// and writes them with the schema of their topic.
func TestEventsFitTheirSchema(t *testing.T) {
	t.Parallel()
	for topic, kind := range published {
		schema := messageOf(t, definition(t, topic))
		seen := census{}
		for i, event := range randomEvents(t, kind) {
			seen.take(event.ProtoReflect())
			data := marshal(t, event)
			read := dynamicpb.NewMessage(schema)
			if err := proto.Unmarshal(data, read); err != nil {
				t.Fatalf("event %d: %v\n%v", i, err, event)
			}
			if where := unknown(read); where != "" {
				t.Fatalf("event %d: the schema does not know all of %s\n%v", i, where, event)
			}
			if diff := cmp.Diff(plain(event.ProtoReflect()), plain(read)); diff != "" {
				t.Fatalf("event %d means something else to the schema (-event +schema):\n%s", i, diff)
			}
			back := event.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(marshal(t, read), back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(event, back, protocmp.Transform()); diff != "" {
				t.Fatalf("event %d is another after the schema wrote it (-want +got):\n%s", i, diff)
			}
			if !bytes.Equal(marshal(t, back), data) {
				t.Fatalf("event %d has other bytes after the schema wrote it", i)
			}
		}
		for name, n := range seen {
			if n.set < 20 || n.unset < 20 {
				t.Errorf("%s was set %d times and left out %d times: the test shows little", name, n.set, n.unset)
			}
		}
	}
}

// TestBrokerHoldsEventsAgainstTheSchema publishes the same events to a topic
// with the schema, and also data that is no event.
func TestBrokerHoldsEventsAgainstTheSchema(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for topic, kind := range published {
		b.topic(t, topic, b.schema(t, topic, definition(t, topic)))
		var batch []*pubsubpb.PubsubMessage
		for _, event := range randomEvents(t, kind) {
			batch = append(batch, &pubsubpb.PubsubMessage{Data: marshal(t, event), Attributes: map[string]string{"event_id": "e"}})
			if len(batch) == 100 {
				if err := b.publish(t, topic, batch...); err != nil {
					t.Fatal(err)
				}
				batch = nil
			}
		}
		for name, data := range map[string]string{
			"text": "hello", "JSON": `{"event_id": "e"}`, "zeros": "\x00\x00", "an unknown field": "\x0a\x01e\xf8\x3f\x01",
			"a string for an int": "\x2a\x01x", "cut off": "\x0a\x05e", "no UTF-8": "\x0a\x01\xff", "unknown in a Timestamp": "\x32\x02\x20\x01",
		} {
			err := b.publish(t, topic, &pubsubpb.PubsubMessage{Data: []byte(data), Attributes: map[string]string{"k": "v"}})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s, %s: %v, want INVALID_ARGUMENT", topic, name, err)
			}
		}
	}
}

func randomEvents(t testing.TB, kind proto.Message) []proto.Message {
	t.Helper()
	r := rand.New(rand.NewPCG(14, 1))
	made := make([]proto.Message, events)
	for i := range made {
		m := kind.ProtoReflect().New()
		random(t, r, i, m)
		made[i] = m.Interface()
	}
	return made
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func definition(t testing.TB, topic string) string {
	t.Helper()
	text, err := schemas.Definition(topic)
	if err != nil || text == "" {
		t.Fatalf("schema of %s: %q, %v", topic, text, err)
	}
	return text
}

func messageOf(t testing.TB, text string) protoreflect.MessageDescriptor {
	t.Helper()
	file, err := compileText(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	if file.Messages().Len() != 1 || file.Imports().Len() != 0 || file.Enums().Len() != 0 {
		t.Fatalf("a schema has one top-level type and no imports:\n%s", text)
	}
	return file.Messages().Get(0)
}

// A broker is the repository's own, as a client sees it.
type broker struct {
	pubsubpb.PublisherClient
	pubsubpb.SchemaServiceClient
}

func newBroker(t testing.TB) broker {
	t.Helper()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return broker{pubsubpb.NewPublisherClient(conn), pubsubpb.NewSchemaServiceClient(conn)}
}

// schema creates a schema and returns its name.
func (b broker) schema(t testing.TB, id, text string) string {
	t.Helper()
	made, err := b.CreateSchema(t.Context(), &pubsubpb.CreateSchemaRequest{Parent: project, SchemaId: id, Schema: source("", text)})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetName()
}

func source(name, text string) *pubsubpb.Schema {
	return &pubsubpb.Schema{Name: name, Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: text}
}

func (b broker) topic(t testing.TB, id, schema string) {
	t.Helper()
	settings := &pubsubpb.SchemaSettings{Schema: schema, Encoding: pubsubpb.Encoding_BINARY}
	if _, err := b.CreateTopic(t.Context(), &pubsubpb.Topic{Name: project + "/topics/" + id, SchemaSettings: settings}); err != nil {
		t.Fatal(err)
	}
}

func (b broker) publish(t testing.TB, topic string, messages ...*pubsubpb.PubsubMessage) error {
	t.Helper()
	_, err := b.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: project + "/topics/" + topic, Messages: messages})
	return err
}

// sources copies proto/ and its baseline.
func sources(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../proto")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// edit replaces old, which must occur once, in an events.proto below dir.
func edit(t testing.TB, dir, kind, old, replacement string) {
	t.Helper()
	name := filepath.Join(dir, kind, "events/v1/events.proto")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s has %q %d times, want once", name, old, n)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(text), old, replacement, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}
