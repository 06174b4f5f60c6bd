package broker

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/topics"
	videoeventsv1 "example.com/lockstep/proto/video/events/v1"
)

const project = "test"

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Local, Official} {
		t.Run(name(kind), func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{Kind: kind})
			if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
				t.Fatal(err)
			}
			for _, topic := range topics.Names() {
				subscription := topics.Subscription(topic, topics.Catalog)
				roundTrip(t, s.Addr(), topic, subscription)
				roundTrip(t, s.Addr(), topics.DeadLetters(subscription), topics.DeadLetters(subscription))
			}
		})
	}
}

func TestLargeMessages(t *testing.T) {
	t.Parallel()
	s := start(t, Options{})
	if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
		t.Fatal(err)
	}
	request := &pubsubpb.PublishRequest{
		Topic:    "projects/" + project + "/topics/" + topics.Video,
		Messages: []*pubsubpb.PubsubMessage{{Data: event(t, strings.Repeat("x", 9<<20))}},
	}
	if _, err := pubsubpb.NewPublisherClient(dial(t, s.Addr())).Publish(t.Context(), request); err != nil {
		t.Error(err)
	}
}

func TestProvisionTwice(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Local, Official} {
		t.Run(name(kind), func(t *testing.T) {
			t.Parallel()
			s := start(t, Options{Kind: kind})
			first, err := Provision(t.Context(), s.Addr(), project)
			if err != nil {
				t.Fatal(err)
			}
			if len(first.Created)+len(first.Left) != 4*len(topics.All)+schemaCount(t) || len(first.Existing) != 0 {
				t.Errorf("first run = %+v, want two topics and two subscriptions of each kind of aggregate, and the schemas", first)
			}
			if (len(first.Left) > 0) != (kind == Official) {
				t.Errorf("first run left out %v", first.Left)
			}
			second, err := Provision(t.Context(), s.Addr(), project)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Provisioned{Existing: first.Created, Left: first.Left}, second); diff != "" {
				t.Errorf("second run (-want +got):\n%s", diff)
			}
			checkSubscriptions(t, s.Addr(), kind)
		})
	}
}

// checkSubscriptions compares the broker's subscriptions with the documented
// settings.
func checkSubscriptions(tb testing.TB, addr string, kind Kind) {
	tb.Helper()
	client := pubsubpb.NewSubscriberClient(dial(tb, addr))
	for _, topic := range topics.Names() {
		name := topic + ".catalog"
		events := &pubsubpb.Subscription{
			Topic: topic, AckDeadlineSeconds: 60, EnableMessageOrdering: true, RetainAckedMessages: true,
			MessageRetentionDuration: durationpb.New(7 * 24 * time.Hour),
			RetryPolicy:              &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(time.Second), MaximumBackoff: durationpb.New(time.Minute)},
		}
		letters := &pubsubpb.Subscription{
			Topic: name + ".dlq", AckDeadlineSeconds: 60, MessageRetentionDuration: durationpb.New(7 * 24 * time.Hour),
		}
		if kind == Local { // the others fail on the policy, and refuse a longer retention
			dead := "projects/" + project + "/topics/" + name + ".dlq"
			events.DeadLetterPolicy = &pubsubpb.DeadLetterPolicy{DeadLetterTopic: dead, MaxDeliveryAttempts: 100}
			letters.MessageRetentionDuration = durationpb.New(31 * 24 * time.Hour)
		}
		for id, want := range map[string]*pubsubpb.Subscription{name: events, name + ".dlq": letters} {
			want.Name, want.Topic = "projects/"+project+"/subscriptions/"+id, "projects/"+project+"/topics/"+want.GetTopic()
			got, err := client.GetSubscription(tb.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: want.GetName()})
			if err != nil {
				tb.Error(err)
				continue
			}
			if got.GetExpirationPolicy().GetTtl() != nil {
				tb.Errorf("%s expires after %v", id, got.GetExpirationPolicy().GetTtl())
			}
			ignore := protocmp.IgnoreFields(want, "state", "push_config", "expiration_policy")
			if diff := cmp.Diff(want, got, protocmp.Transform(), ignore); diff != "" {
				tb.Errorf("%s (-want +got):\n%s", id, diff)
			}
		}
	}
}

// A topic that was deleted and created again does not get its subscription back.
func TestProvisionNamesASubscriptionOfADeletedTopic(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Kind: Local})
	if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
		t.Fatal(err)
	}
	topic := "projects/" + project + "/topics/" + topics.Names()[0]
	if _, err := pubsubpb.NewPublisherClient(dial(t, s.Addr())).DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	_, gone := fullTopology(project)
	gone = slices.DeleteFunc(gone, func(s *pubsubpb.Subscription) bool { return s.GetTopic() != topic })
	if missing, err := Missing(t.Context(), s.Addr(), project); err != nil || len(missing) != 1+len(gone) {
		t.Errorf("missing: %v, %v; want the topic and its %d subscriptions", missing, err, len(gone))
	}
	_, err := Provision(t.Context(), s.Addr(), project)
	for _, part := range []string{"/subscriptions/" + topics.Names()[0] + ".", "_deleted-topic_", "delete it"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want an error with %q", err, part)
		}
	}
	subscriber := pubsubpb.NewSubscriberClient(dial(t, s.Addr()))
	for _, s := range gone {
		if _, err := subscriber.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: s.GetName()}); err != nil {
			t.Fatal(err)
		}
	}
	if made, err := Provision(t.Context(), s.Addr(), project); err != nil || len(made.Created) != len(gone) {
		t.Errorf("after that: %v, %v", made.Created, err)
	}
}

// The messages that a filter leaves out do not come, and a filter cannot be changed.
func TestProvisionNamesASubscriptionWithAFilter(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Kind: Local})
	if _, err := Provision(t.Context(), s.Addr(), project); err != nil {
		t.Fatal(err)
	}
	_, all := fullTopology(project)
	const filter = `attributes.event_type != "VideoUpdated"`
	filtered := proto.CloneOf(all[0])
	filtered.Filter = filter
	subscriber := pubsubpb.NewSubscriberClient(dial(t, s.Addr()))
	if _, err := subscriber.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: filtered.GetName()}); err != nil {
		t.Fatal(err)
	}
	if _, err := subscriber.CreateSubscription(t.Context(), filtered); err != nil {
		t.Fatal(err)
	}
	if missing, err := Missing(t.Context(), s.Addr(), project); err != nil || !slices.Equal(missing, []string{filtered.GetName()}) {
		t.Errorf("missing: %q, %v; want the subscription", missing, err)
	}
	_, err := Provision(t.Context(), s.Addr(), project)
	for _, part := range []string{filtered.GetName(), "event_type", "delete it"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want an error with %q", err, part)
		}
	}
}

func TestProvisionNamesTheAddress(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Provision(ctx, "127.0.0.1:1", project); err == nil || !strings.HasPrefix(err.Error(), "provision 127.0.0.1:1: ") {
		t.Errorf("%v, want the address as it was given", err)
	}
}

func TestProvisionRefusesNoAddress(t *testing.T) {
	t.Setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1") // must not be used
	_, err := Provision(t.Context(), "", project)
	if err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("Provision = %v, want a refusal", err)
	}
}

// roundTrip publishes one message with an ordering key and waits for it.
func roundTrip(tb testing.TB, addr, topic, subscription string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	client, err := pubsub.NewClient(ctx, project, option.WithGRPCConn(dial(tb, addr)))
	if err != nil {
		tb.Fatal(err)
	}
	defer client.Close()
	publisher := client.Publisher(topic)
	publisher.EnableMessageOrdering = true
	defer publisher.Stop()
	sent := &pubsub.Message{Data: event(tb, "hello "+topic), OrderingKey: "k"}
	if _, err := publisher.Publish(ctx, sent).Get(ctx); err != nil {
		tb.Fatal(err)
	}
	var got string
	err = client.Subscriber(subscription).Receive(ctx, func(_ context.Context, m *pubsub.Message) {
		got = string(m.Data)
		m.Ack()
		cancel()
	})
	if err != nil || got != string(sent.Data) {
		tb.Errorf("received %q from %s, %v", got, subscription, err)
	}
}

// event returns an event that the schemas of all topics accept.
func event(tb testing.TB, id string) []byte {
	tb.Helper()
	data, err := proto.Marshal(&videoeventsv1.Event{EventId: id})
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func dial(tb testing.TB, addr string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}
