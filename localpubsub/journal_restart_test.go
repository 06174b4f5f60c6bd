package localpubsub_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/localpubsub"
)

// restarted closes the world and opens another on its file.
func (w *world) restarted(file string) *world {
	w.t.Helper()
	if err := w.Close(); err != nil {
		w.t.Fatal(err)
	}
	return newWorld(w.t, localpubsub.Options{File: file, Clock: w.clock})
}

// An ack id from before a restart is valid for no delivery after it. Without
// exactly-once delivery it is ignored, as any that comes too late.
func TestAckIDsFromBeforeARestart(t *testing.T) {
	t.Parallel()
	for _, exactlyOnce := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "events")
		w := newWorld(t, localpubsub.Options{File: file})
		w.subscribe(&pubsubpb.Subscription{EnableExactlyOnceDelivery: exactlyOnce, EnableMessageOrdering: true})
		w.publish("A", "one", "two")
		before := w.pull()
		for range 2 {
			w = w.restarted(file)
			first := w.pull()
			wantTexts(t, first, "one", "two")
			_, err := w.Acknowledge(w.context(), &pubsubpb.AcknowledgeRequest{Subscription: subscriptionName, AckIds: ackIDs(before)})
			if code := status.Code(err); exactlyOnce != (code == codes.InvalidArgument) {
				t.Errorf("exactly once %t: acknowledgement from before: %v", exactlyOnce, err)
			}
			w.clock.Advance(11 * time.Second)
			again := w.pull()
			wantTexts(t, again, "one", "two")
			w.modify(0, again...)
			before = first
		}
		w.ack(w.pull()...)
		wantTexts(t, w.restarted(file).pull())
	}
}

// Message ids continue, even if the clock that they start from was ahead.
func TestMessageIDsGoOn(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	w := newWorld(t, localpubsub.Options{File: file})
	w.subscribe(&pubsubpb.Subscription{EnableMessageOrdering: true})
	w.SkipMessageIDs(uint64(time.Hour.Microseconds()))
	last := w.publish("A", "before")
	for range 2 { // once from the record of the publish, once from a rewritten file
		w.ack(w.pull()...)
		w = w.restarted(file)
		next := w.publish("A", "after")
		if next[0] <= last[0] {
			t.Errorf("message id %s after %s", next[0], last[0])
		}
		last = next
	}
}

// Restored resources keep working: filters select, schemas refuse and add
// attributes, retention ends, and names are free again after a delete.
func TestRestoredServerWorks(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	w := newWorld(t, localpubsub.Options{File: file})
	schemas := func() pubsubpb.SchemaServiceClient { return pubsubpb.NewSchemaServiceClient(w.conn) }
	create := &pubsubpb.CreateSchemaRequest{
		Parent: "projects/p", SchemaId: "shape",
		Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: `syntax = "proto3"; message M { string a = 1; }`},
	}
	created, err := schemas().CreateSchema(w.context(), create)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := createTopic(w, &pubsubpb.Topic{Name: topicName, SchemaSettings: &pubsubpb.SchemaSettings{
		Schema: created.GetName(), Encoding: pubsubpb.Encoding_JSON,
	}}); err != nil {
		t.Fatal(err)
	}
	w.subscribe(&pubsubpb.Subscription{Filter: `attributes.colour = "red"`})
	w = w.restarted(file)

	publish := func(data, colour string) error {
		return publishTo(w, topicName, &pubsubpb.PubsubMessage{Data: []byte(data), Attributes: map[string]string{"colour": colour}})
	}
	if err := publish(`{"b":"x"}`, "red"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a message against the schema: %v", err)
	}
	for _, colour := range []string{"blue", "red"} {
		if err := publish(`{"a":"`+colour+`"}`, colour); err != nil {
			t.Fatal(err)
		}
	}
	got := w.pull()
	wantTexts(t, got, `{"a":"red"}`)
	if id := got[0].GetMessage().GetAttributes()["googclient_schemarevisionid"]; id != created.GetRevisionId() {
		t.Errorf("validated by revision %q, want %q", id, created.GetRevisionId())
	}
	w = w.restarted(file)
	w.clock.Advance(8 * 24 * time.Hour)
	wantTexts(t, w.pull())
	if _, err := schemas().CreateSchema(w.context(), create); status.Code(err) != codes.AlreadyExists {
		t.Errorf("the schema once more: %v", err)
	}
	if _, err := schemas().DeleteSchema(w.context(), &pubsubpb.DeleteSchemaRequest{Name: created.GetName()}); err != nil {
		t.Error(err)
	}
	w = w.restarted(file)
	if topic, err := w.GetTopic(w.context(), &pubsubpb.GetTopicRequest{Topic: topicName}); err != nil ||
		!strings.HasPrefix(topic.GetSchemaSettings().GetSchema(), "_deleted") {
		t.Errorf("topic %v, %v; want it to have lost its schema", topic, err)
	}
}
