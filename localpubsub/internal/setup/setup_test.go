package setup

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/localpubsub"
)

func start(t *testing.T) *localpubsub.Server {
	t.Helper()
	server, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

// TestApply compares what the server has with what the file says.
func TestApply(t *testing.T) {
	t.Parallel()
	server := start(t)
	f, err := Read("testdata/orders.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context(), server); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	topic, err := pubsubpb.NewPublisherClient(conn).GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: "projects/demo/topics/orders"})
	if err != nil || topic.GetSchemaSettings().GetSchema() != "projects/demo/schemas/order" ||
		topic.GetSchemaSettings().GetEncoding() != pubsubpb.Encoding_JSON || topic.GetMessageRetentionDuration().AsDuration() != 24*time.Hour {
		t.Errorf("topic %v, %v", topic, err)
	}
	subscriptions := pubsubpb.NewSubscriberClient(conn)
	get := func(name string) *pubsubpb.Subscription {
		s, err := subscriptions.GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: name})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := &pubsubpb.Subscription{
		Name: "projects/demo/subscriptions/orders.billing", Topic: "projects/demo/topics/orders", Filter: `attributes.kind = "paid"`,
		EnableMessageOrdering: true, AckDeadlineSeconds: 30, RetainAckedMessages: true,
		MessageRetentionDuration: durationpb.New(48 * time.Hour),
		RetryPolicy:              &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(20 * time.Second)},
		DeadLetterPolicy:         &pubsubpb.DeadLetterPolicy{DeadLetterTopic: "projects/demo/topics/orders.dead", MaxDeliveryAttempts: 7},
	}
	ignored := protocmp.IgnoreFields(want, "state", "push_config", "expiration_policy", "topic_message_retention_duration")
	if diff := cmp.Diff(want, get(want.GetName()), protocmp.Transform(), ignored); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s := get("projects/other/subscriptions/orders.copy"); !s.GetEnableExactlyOnceDelivery() || s.GetTopic() != topic.GetName() {
		t.Errorf("a subscription of another project: %v", s)
	}
	if faults := body(t, "http://"+server.Addr()+"/control/faults"); !strings.Contains(faults, `"seed":7`) || !strings.Contains(faults, `"delay":"5ms"`) {
		t.Errorf("faults %s", faults)
	}
}

func body(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestBadFiles: each error names the place.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"projects: {p: {topics: {t-t: {shema: s}}}}": "line 1: field shema not found",
		"projects: [p]":                                                                       "line 1: cannot unmarshal",
		"projects: {p: {topics: {t: {}}}}":                                                    "topic t of projects/p: ",
		"projects: {p: {topics: {top: {schema: none}}}}":                                      "topic top of projects/p: ",
		"projects: {p: {topics: {top: {encoding: JSON}}}}":                                    "topic top of projects/p: encoding",
		"projects: {p: {schemas: {sch: {definition: message}}}}":                              "schema sch of projects/p: ",
		"projects: {p: {schemas: {sch: {definition: a, file: b}}}}":                           "projects.p.schemas.sch: definition or file",
		"projects: {p: {schemas: {sch: {file: none.proto}}}}":                                 "none.proto",
		"projects: {p: {subscriptions: {sub: {topic: none}}}}":                                "subscription sub of projects/p: ",
		"projects: {p: {subscriptions: {sub: {}}}}":                                           "subscription sub of projects/p: topic",
		"projects: {p: {topics: {top: {}}, subscriptions: {sub: {topic: top, filter: '('}}}}": "subscription sub of projects/p: ",
		"projects: {p: {subscriptions: {sub: {topic: top, ack_deadline: soon}}}}":             "line 1: cannot unmarshal",
		"projects: {p: {subscriptions: {sub: {topic: top, ack_deadline: 10s500ms}}}}":         "subscription sub of projects/p: ack_deadline",
		"faults: [{kind: storm}]":                                                             `there is no "storm"`,
		"faults: [{kind: latency, delay: soon}]":                                              "soon",
		"seed: 1\n---\nseed: 2\n":                                                             "second document",
	} {
		name := filepath.Join(t.TempDir(), "init.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Read(name)
		if err == nil {
			err = f.Apply(t.Context(), start(t))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "init.yaml")
	if err := os.WriteFile(name, []byte("#"+strings.Repeat("x", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(name); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a large file: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(name); err != nil || len(f.Projects) != 0 {
		t.Errorf("an empty file: %v, %v", f, err)
	}
}
