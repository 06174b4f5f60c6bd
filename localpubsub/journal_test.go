package localpubsub_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/localpubsub"
)

// leftBehind returns a copy of the file: the file that a kill at this moment
// would leave.
func (w *world) leftBehind(file string) string {
	w.t.Helper()
	left := filepath.Join(w.t.TempDir(), "left")
	writeFile(w.t, left, readFile(w.t, file))
	return left
}

// crashed starts a server from a copy of the file, at the same time of the same
// clock.
func (w *world) crashed(file string) *world {
	w.t.Helper()
	return newWorld(w.t, localpubsub.Options{File: w.leftBehind(file), Clock: w.clock})
}

func (w *world) records() []string {
	w.t.Helper()
	all, err := w.Records()
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// journalStep is one change of the state, by a call or by time.
type journalStep struct {
	name string
	do   func(w *world) error
}

func call[Q, A any](method func(w *world, q Q) (A, error), q Q) func(w *world) error {
	return func(w *world) error { _, err := method(w, q); return err }
}

func createTopic(w *world, t *pubsubpb.Topic) (*pubsubpb.Topic, error) {
	return w.CreateTopic(w.context(), t)
}

func createSubscription(w *world, s *pubsubpb.Subscription) (*pubsubpb.Subscription, error) {
	return w.CreateSubscription(w.context(), s)
}

func commitSchema(w *world, definition string) (*pubsubpb.Schema, error) {
	return pubsubpb.NewSchemaServiceClient(w.conn).CommitSchema(w.context(), &pubsubpb.CommitSchemaRequest{
		Name: "projects/p/schemas/shape", Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: definition},
	})
}

func publishTo(w *world, topic string, messages ...*pubsubpb.PubsubMessage) error {
	_, err := w.Publish(w.context(), &pubsubpb.PublishRequest{Topic: topic, Messages: messages})
	return err
}

func snapshotName(id string) string { return "projects/p/snapshots/" + id }

// journalSteps cover each place that changes the content of the file. The
// subscription of world is ordered, retains acknowledged messages and sends a
// message to the dead letter topic after 5 failures.
var journalSteps = []journalStep{
	{"topic", call(createTopic, &pubsubpb.Topic{Name: topicName, MessageRetentionDuration: durationpb.New(time.Hour)})},
	{"dead letters", call(createTopic, &pubsubpb.Topic{Name: deadTopicName, Labels: map[string]string{"a": "b", "c": "d", "e": "f"}})},
	{"dead subscription", call(createSubscription, &pubsubpb.Subscription{Name: deadSubscriptionName, Topic: deadTopicName})},
	{"subscription", call(createSubscription, &pubsubpb.Subscription{
		Name: subscriptionName, Topic: topicName, EnableMessageOrdering: true, RetainAckedMessages: true,
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: deadTopicName, MaxDeliveryAttempts: 5},
	})},
	{"filtered", call(createSubscription, &pubsubpb.Subscription{
		Name: "projects/p/subscriptions/filtered", Topic: topicName, Filter: `attributes.colour = "red"`, EnableExactlyOnceDelivery: true,
	})},
	{"publish", func(w *world) error {
		w.publish("A", "a1", "a2", "a3")
		w.publish("B", "b1")
		return publishTo(w, topicName, &pubsubpb.PubsubMessage{Data: []byte("red"), Attributes: map[string]string{"colour": "red"}})
	}},
	{"ack", func(w *world) error { w.ack(w.pull()...); return nil }},
	{"ack on a stream", func(w *world) error {
		w.publish("", "streamed")
		s := w.stream(0)
		if err := s.Send(&pubsubpb.StreamingPullRequest{AckIds: ackIDs(s.receive(1))}); err != nil {
			return err
		}
		s.quiet()
		s.cancel()
		return nil
	}},
	{"snapshot", func(w *world) error {
		w.publish("C", "c1", "c2")
		_, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: snapshotName("one"), Subscription: subscriptionName})
		return err
	}},
	{"publish into the snapshot", func(w *world) error { w.publish("C", "c3"); return nil }},
	{"update snapshot", func(w *world) error {
		_, err := w.UpdateSnapshot(w.context(), &pubsubpb.UpdateSnapshotRequest{
			Snapshot:   &pubsubpb.Snapshot{Name: snapshotName("one"), Labels: map[string]string{"kept": "yes"}},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels"}},
		})
		return err
	}},
	{"ack before a seek", func(w *world) error { w.ack(w.pull()...); return nil }},
	{"seek to a snapshot", func(w *world) error {
		_, err := w.Seek(w.context(), &pubsubpb.SeekRequest{
			Subscription: subscriptionName, Target: &pubsubpb.SeekRequest_Snapshot{Snapshot: snapshotName("one")},
		})
		return err
	}},
	{"seek to a time", func(w *world) error {
		_, err := w.Seek(w.context(), &pubsubpb.SeekRequest{
			Subscription: subscriptionName, Target: &pubsubpb.SeekRequest_Time{Time: timestamppb.New(w.clock.Now())},
		})
		return err
	}},
	{"dead letter by deadline", func(w *world) error {
		w.publish("", "late")
		for range 5 {
			w.pull()
			w.clock.Advance(11 * time.Second)
		}
		return nil
	}},
	{"dead letter by nack", func(w *world) error {
		w.publish("", "nacked")
		for range 5 {
			w.modify(0, w.pull()...)
		}
		return nil
	}},
	{"update topic", func(w *world) error {
		_, err := w.UpdateTopic(w.context(), &pubsubpb.UpdateTopicRequest{
			Topic:      &pubsubpb.Topic{Name: topicName, MessageRetentionDuration: durationpb.New(20 * time.Minute)},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
		})
		return err
	}},
	{"update subscription", func(w *world) error {
		_, err := w.UpdateSubscription(w.context(), &pubsubpb.UpdateSubscriptionRequest{
			Subscription: &pubsubpb.Subscription{Name: subscriptionName, MessageRetentionDuration: durationpb.New(30 * time.Minute)},
			UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
		})
		return err
	}},
	{"topic forgets", func(w *world) error { w.publish("D", "d1"); w.clock.Advance(25 * time.Minute); return nil }},
	{"subscription forgets", func(w *world) error { w.clock.Advance(6 * time.Minute); return nil }},
	{"policy", func(w *world) error {
		_, err := iampb.NewIAMPolicyClient(w.conn).SetIamPolicy(w.context(), &iampb.SetIamPolicyRequest{
			Resource: topicName,
			Policy:   &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.publisher", Members: []string{"user:a@example.com"}}}},
		})
		return err
	}},
	{"schema", func(w *world) error {
		_, err := pubsubpb.NewSchemaServiceClient(w.conn).CreateSchema(w.context(), &pubsubpb.CreateSchemaRequest{
			Parent: "projects/p", SchemaId: "shape",
			Schema: &pubsubpb.Schema{Type: pubsubpb.Schema_PROTOCOL_BUFFER, Definition: `syntax = "proto3"; message M { string a = 1; }`},
		})
		return err
	}},
	{"commit schema", call(commitSchema, `syntax = "proto3"; message M { string a = 1; string b = 2; }`)},
	{"delete revision", func(w *world) error {
		third, err := commitSchema(w, `syntax = "proto3"; message M { string a = 1; string b = 2; string c = 3; }`)
		if err != nil {
			return err
		}
		_, err = pubsubpb.NewSchemaServiceClient(w.conn).DeleteSchemaRevision(w.context(), &pubsubpb.DeleteSchemaRevisionRequest{
			Name: third.GetName() + "@" + third.GetRevisionId(),
		})
		return err
	}},
	{"topic with a schema", call(createTopic, &pubsubpb.Topic{Name: "projects/p/topics/shaped", SchemaSettings: &pubsubpb.SchemaSettings{
		Schema: "projects/p/schemas/shape", Encoding: pubsubpb.Encoding_JSON,
	}})},
	{"publish by schema", func(w *world) error {
		return publishTo(w, "projects/p/topics/shaped", &pubsubpb.PubsubMessage{Data: []byte(`{"a":"x"}`)})
	}},
	{"delete schema", func(w *world) error {
		_, err := pubsubpb.NewSchemaServiceClient(w.conn).DeleteSchema(w.context(), &pubsubpb.DeleteSchemaRequest{Name: "projects/p/schemas/shape"})
		return err
	}},
	{"detach", func(w *world) error {
		_, err := w.DetachSubscription(w.context(), &pubsubpb.DetachSubscriptionRequest{Subscription: deadSubscriptionName})
		return err
	}},
	{"second snapshot", func(w *world) error {
		w.publish("E", "e1")
		_, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: snapshotName("two"), Subscription: subscriptionName})
		return err
	}},
	{"delete snapshot", func(w *world) error {
		_, err := w.DeleteSnapshot(w.context(), &pubsubpb.DeleteSnapshotRequest{Snapshot: snapshotName("two")})
		return err
	}},
	{"snapshot expires", func(w *world) error { w.clock.Advance(8 * 24 * time.Hour); return nil }},
	{"third snapshot", func(w *world) error {
		w.publish("F", "f1")
		_, err := w.CreateSnapshot(w.context(), &pubsubpb.CreateSnapshotRequest{Name: snapshotName("three"), Subscription: subscriptionName})
		return err
	}},
	{"delete topic", func(w *world) error {
		_, err := w.DeleteTopic(w.context(), &pubsubpb.DeleteTopicRequest{Topic: topicName})
		return err
	}},
	{"topic of the same name", call(createTopic, &pubsubpb.Topic{Name: topicName})},
	{"publish to that one", func(w *world) error { w.publish("", "not for the orphans"); return nil }},
	{"delete subscription", func(w *world) error {
		_, err := w.DeleteSubscription(w.context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: "projects/p/subscriptions/filtered"})
		return err
	}},
	{"subscription expires", func(w *world) error { w.clock.Advance(32 * 24 * time.Hour); return nil }},
	{"forget", func(w *world) error { w.Forget(); return nil }},
	{"topic after all", call(createTopic, &pubsubpb.Topic{Name: topicName})},
}

// A restart at any moment finds all state: configuration, policies, schemas,
// messages and their acknowledgements.
func TestFileKeepsEverything(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "events")
	w := newWorld(t, localpubsub.Options{File: file})
	var before []string
	for _, step := range journalSteps {
		if err := step.do(w); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		now := w.records()
		if cmp.Equal(before, now) {
			t.Errorf("%s: changes nothing, and so tests nothing", step.name)
		}
		before = now
		again := w.crashed(file)
		if diff := cmp.Diff(now, again.records()); diff != "" {
			t.Fatalf("after %s, before and after a restart:\n%s", step.name, diff)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The journal knows each method of the server. A method with the wrong passage
// would not be kept.
func TestJournalKnowsAllMethods(t *testing.T) {
	t.Parallel()
	known := map[string]string{
		"configuration": "CreateTopic UpdateTopic DeleteTopic DetachSubscription CreateSubscription UpdateSubscription DeleteSubscription " +
			"Seek CreateSnapshot UpdateSnapshot DeleteSnapshot CreateSchema CommitSchema RollbackSchema DeleteSchemaRevision DeleteSchema SetIamPolicy",
		"messages": "Publish Acknowledge ModifyAckDeadline",
		"nothing": "GetTopic ListTopics ListTopicSubscriptions ListTopicSnapshots GetSubscription ListSubscriptions Pull ModifyPushConfig " +
			"GetSnapshot ListSnapshots GetSchema ListSchemas ListSchemaRevisions ValidateSchema ValidateMessage GetIamPolicy TestIamPermissions",
	}
	want := make(map[string]string)
	for sort, methods := range known {
		for method := range strings.FieldsSeq(methods) {
			want[method] = sort
		}
	}
	if diff := cmp.Diff(want, newWorld(t, localpubsub.Options{}).Passages()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
