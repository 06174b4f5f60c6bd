package inbox

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
)

// errorLines passes on the messages of the lines at ERROR.
type errorLines chan string

func (e errorLines) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}
func (e errorLines) WithAttrs([]slog.Attr) slog.Handler { return e }
func (e errorLines) WithGroup(string) slog.Handler      { return e }

func (e errorLines) Handle(_ context.Context, r slog.Record) error {
	e <- r.Message
	return nil
}

// The topic is deleted and created again. The subscription stays without one, although no pull
// fails. The consumer says so until the subscription is new, too.
func TestASubscriptionWithoutATopicIsToldOf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	said := make(errorLines, 10)
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(said), func() {}, Options{Streams: b.streams})
	shown := func(want int64) {
		t.Helper()
		if got := c.metrics.pullFailures(); got != want {
			t.Errorf("%d failed pulls are shown, want %d", got, want)
		}
	}
	c.lookAtTopic(t.Context())
	shown(0)
	if err := b.client.TopicAdminClient.DeleteTopic(t.Context(), &pubsubpb.DeleteTopicRequest{Topic: topic}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: topic}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case line := <-said:
		t.Log(line)
	case <-time.After(patience):
		t.Fatal("a running consumer says nothing")
	}
	shown(1)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	name := "projects/test/subscriptions/" + subscription
	admin := b.client.SubscriptionAdminClient
	if err := admin.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		t.Fatal(err)
	}
	c.lookAtTopic(t.Context())
	shown(1)
	if _, err := admin.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	c.lookAtTopic(t.Context())
	shown(0)
}

// A filter is written to the log once, and a new subscription without a filter is not.
func TestAFilterIsToldOf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	name, admin := "projects/test/subscriptions/"+subscription, b.client.SubscriptionAdminClient
	var log bytes.Buffer
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(slog.NewTextHandler(&log, nil)), func() {}, Options{Streams: b.streams})
	for _, filter := range []string{"", `attributes.tenant_id="x"`, ""} {
		if err := admin.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
			t.Fatal(err)
		}
		_, err := admin.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: 10, Filter: filter})
		if err != nil {
			t.Fatal(err)
		}
		c.lookAtTopic(t.Context())
		c.lookAtTopic(t.Context())
		want := 0
		if filter != "" {
			want = 1
		}
		if said := strings.Count(log.String(), "subscription has a filter"); said != want {
			t.Errorf("filter %q: %d lines, want %d", filter, said, want)
		}
		log.Reset()
	}
}
