package catalog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

func TestStartIsReadAsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Start{"resume": {}, "earliest": {Earliest: true}, "10m0s": {Back: 10 * time.Minute}} {
		var s Start
		if err := s.Set(text); err != nil || s != want || s.String() != text {
			t.Errorf("%s is %+v, written %s (%v)", text, s, s.String(), err)
		}
	}
	for _, text := range []string{"", "latest", "-10m", "0s", "2026-01-02T15:04:05Z"} {
		if err := new(Start).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// seeks records the times that the client seeks to.
type seeks struct {
	mu sync.Mutex
	to []time.Time
}

func (s *seeks) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if request, ok := req.(*pubsubpb.SeekRequest); ok && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to = append(s.to, request.GetTime().AsTime())
	}
	return err
}

// brokerOf starts a broker for the clients of this process, with the topics of a project.
func brokerOf(t *testing.T, provision bool) (client *pubsub.Client, s *seeks, addr string) {
	t.Helper()
	local, err := broker.Start(t.Context(), broker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	t.Setenv("PUBSUB_EMULATOR_HOST", local.Addr())
	if provision {
		if _, err := broker.Provision(t.Context(), local.Addr(), "test"); err != nil {
			t.Fatal(err)
		}
	}
	s = &seeks{}
	client, err = connect.NewPubSub(t.Context(), "test", connect.PubSubOptions{Dial: []grpc.DialOption{grpc.WithChainUnaryInterceptor(s.intercept)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client, s, local.Addr()
}

// Instances of a deployment that start at once, and later, seek once together. The next
// deployment seeks again.
func TestADeploymentSeeksOnce(t *testing.T) {
	client, seeks, _ := brokerOf(t, true)
	f := setUp(t)
	start := func(deployment string, s Start) {
		t.Helper()
		offsets := checkpoint.New(f.pool, EngagementOffsets, "host", quiet())
		run := seeker{s, deployment, EngagementSubscription, offsets, client, quiet()}.before(func(context.Context) error { return nil }, func() {})
		if err := run(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wantSeeks := func(n int, to time.Time) {
		t.Helper()
		if len(seeks.to) != n {
			t.Fatalf("%d seeks, want %d", len(seeks.to), n)
		}
		if n > 0 && seeks.to[n-1].Sub(to).Abs() > time.Minute {
			t.Errorf("the seek is to %v, want %v", seeks.to[n-1], to)
		}
	}
	start("one", Start{})
	start("one", Start{Back: time.Minute})
	wantSeeks(0, time.Time{}) // there is no position to go back from

	var instances sync.WaitGroup
	for range 8 {
		instances.Go(func() { start("one", Start{Earliest: true}) })
	}
	instances.Wait()
	start("one", Start{Earliest: true})
	wantSeeks(1, time.Now().Add(-7*24*time.Hour))

	position := time.Now().Add(-2 * time.Hour)
	err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		checkpoint.New(f.pool, EngagementOffsets, "host", quiet()).Save(b, "i", checkpoint.Offset{MessageID: "m", PublishTime: position})
		_, err := tx.Exec(t.Context(), `DELETE FROM engagement_offsets`) // no hour has passed since the seek
		return errors.Join(err, tx.SendBatch(t.Context(), b).Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	start("two", Start{Back: 30 * time.Minute})
	wantSeeks(2, position.Add(-40*time.Minute))
	start("two", Start{Back: 30 * time.Minute})
	wantSeeks(2, position.Add(-40*time.Minute))
}

// A start at the earliest message is at one that was never acknowledged, too, however short
// the time is for which acknowledged ones are kept.
func TestEarliestGivesUpNoMessage(t *testing.T) {
	for name, retention := range map[string]struct{ topic, subscription, want time.Duration }{
		"no acknowledged messages":       {0, 5 * 24 * time.Hour, 5 * 24 * time.Hour},
		"acknowledged ones for a day":    {24 * time.Hour, 5 * 24 * time.Hour, 5 * 24 * time.Hour},
		"acknowledged ones for ten days": {10 * 24 * time.Hour, 24 * time.Hour, 10 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			client, seeks, _ := brokerOf(t, false)
			f := setUp(t)
			topic := &pubsubpb.Topic{Name: "projects/test/topics/engagement.events"}
			if retention.topic > 0 {
				topic.MessageRetentionDuration = durationpb.New(retention.topic)
			}
			if _, err := client.TopicAdminClient.CreateTopic(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
			_, err := client.SubscriptionAdminClient.CreateSubscription(t.Context(), &pubsubpb.Subscription{
				Name: "projects/test/subscriptions/" + EngagementSubscription, Topic: topic.Name,
				MessageRetentionDuration: durationpb.New(retention.subscription),
			})
			if err != nil {
				t.Fatal(err)
			}
			offsets := checkpoint.New(f.pool, EngagementOffsets, "host", quiet())
			if err := (seeker{Start{Earliest: true}, "one", EngagementSubscription, offsets, client, quiet()}).seek(t.Context()); err != nil {
				t.Fatal(err)
			}
			if age := time.Since(seeks.to[0]); age < retention.want || age > retention.want+time.Hour {
				t.Errorf("the seek is to %v ago, want %v", age, retention.want)
			}
		})
	}
}

// The consumer starts after the seek, which waits for the broker and its subscription.
func TestConsumerStartsAfterTheSeek(t *testing.T) {
	client, seeks, addr := brokerOf(t, false)
	f := setUp(t)
	offsets := checkpoint.New(f.pool, EngagementOffsets, "host", quiet())
	started, beats := make(chan int, 1), make(chan struct{}, 100)
	run := seeker{Start{Earliest: true}, "one", EngagementSubscription, offsets, client, quiet()}.before(func(context.Context) error {
		started <- len(seeks.to)
		return nil
	}, func() { beats <- struct{}{} })
	ended := make(chan error, 1)
	go func() { ended <- run(t.Context()) }()
	<-beats
	<-beats // the first attempt has failed
	select {
	case <-started:
		t.Error("the consumer has started before its seek")
	default:
	}
	if _, err := broker.Provision(t.Context(), addr, "test"); err != nil {
		t.Fatal(err)
	}
	if n := <-started; n != 1 {
		t.Errorf("it has started after %d seeks", n)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestWindowsAreCompared(t *testing.T) {
	client, _, _ := brokerOf(t, true)
	warns := func(remembers time.Duration) string {
		var log bytes.Buffer
		compareWindows(t.Context(), client, []string{Subscription, EngagementSubscription}, remembers, slog.New(slog.NewTextHandler(&log, nil)))
		return log.String()
	}
	if log := warns(8 * 24 * time.Hour); log != "" {
		t.Errorf("a longer memory than 7 days: %s", log)
	}
	if log := warns(7 * 24 * time.Hour); strings.Count(log, "level=ERROR") != 2 || !strings.Contains(log, "replayable=168h0m0s") {
		t.Errorf("a memory of 7 days: %s", log)
	}
	// A topic that keeps messages for longer counts, too.
	_, err := client.TopicAdminClient.UpdateTopic(t.Context(), &pubsubpb.UpdateTopicRequest{
		Topic:      &pubsubpb.Topic{Name: "projects/test/topics/" + broker.EngagementTopic, MessageRetentionDuration: durationpb.New(20 * 24 * time.Hour)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if log := warns(8 * 24 * time.Hour); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "replayable=480h0m0s") {
		t.Errorf("a topic that keeps 20 days: %s", log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		compareWindows(ctx, client, []string{"missing"}, time.Hour, quiet())
	}()
	cancel()
	<-done
}
