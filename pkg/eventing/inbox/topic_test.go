package inbox

import (
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
		if got := c.metrics.pulls(); got != want {
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

// keptLines collects the lines at WARNING and above, with their attributes.
type keptLines struct{ lines *[]string }

func (k keptLines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (k keptLines) WithAttrs([]slog.Attr) slog.Handler               { return k }
func (k keptLines) WithGroup(string) slog.Handler                    { return k }

func (k keptLines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	*k.lines = append(*k.lines, line)
	return nil
}

// A subscription is made again by hand, with a filter. The broker then acknowledges the events that the
// filter leaves out, and refuses no pull. The consumer says so once.
func TestAFilterOfTheSubscriptionIsToldOf(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var said []string
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(keptLines{&said}), func() {}, Options{Streams: b.streams})
	c.lookAtTopic(t.Context())
	if len(said) != 0 {
		t.Errorf("without a filter: %q", said)
	}
	name := "projects/test/subscriptions/" + subscription
	admin := b.client.SubscriptionAdminClient
	if err := admin.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		t.Fatal(err)
	}
	const filter = `attributes.event_type != "VideoUpdated"`
	filtered := &pubsubpb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: 10, Filter: filter}
	if _, err := admin.CreateSubscription(t.Context(), filtered); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c.lookAtTopic(t.Context())
	}
	if len(said) != 1 || !strings.Contains(said[0], filter) {
		t.Errorf("with a filter: %q, want one line that shows it", said)
	}
}
