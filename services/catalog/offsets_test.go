package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/internal/connect"
	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/pkg/eventing/checkpoint"
	"example.com/lockstep/pkg/eventing/operator/audit"
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
	// before runs before a seek, if it is set.
	before func()
	// lost says that the answers to seeks do not arrive.
	lost bool
}

func (s *seeks) intercept(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	request, seek := req.(*pubsubpb.SeekRequest)
	if seek && s.before != nil {
		s.before()
	}
	err := invoke(ctx, method, req, reply, conn, opts...)
	if seek && err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.to = append(s.to, request.GetTime().AsTime())
		if s.lost {
			return status.Error(codes.Internal, "the connection is lost")
		}
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

// starter starts deployments over one database and one broker.
type starter struct {
	*fixture

	client  *pubsub.Client
	seeks   *seeks
	offsets *checkpoint.Store
}

func newStarter(t *testing.T) *starter {
	t.Helper()
	client, seeks, _ := brokerOf(t, true)
	f := setUp(t)
	return &starter{f, client, seeks, checkpoint.New(f.pool, EngagementOffsets, "host", quiet())}
}

func (s *starter) start(t *testing.T, deployment string, at Start) {
	t.Helper()
	if err := (seeker{at, deployment, EngagementSubscription, s.offsets, s.client, quiet()}).seek(t.Context()); err != nil {
		t.Error(err)
	}
}

// save saves a position of an instance.
func (s *starter) save(t *testing.T, position time.Time) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		s.offsets.Save(b, "i", checkpoint.Offset{MessageID: "m", PublishTime: position}, position)
		return tx.SendBatch(t.Context(), b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// age lets time pass, in which no consumer works.
func (s *starter) age(t *testing.T, d time.Duration) {
	t.Helper()
	_, err := s.admin.Exec(t.Context(), `
		UPDATE catalog.engagement_offsets SET updated_at = updated_at - $1::interval, publish_time = publish_time - $1::interval`, d)
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass, in which the consumer keeps up.
func (s *starter) pass(t *testing.T, d time.Duration) {
	t.Helper()
	s.age(t, d)
	s.save(t, time.Now())
}

// sought requires so many seeks so far, and that the last one was to a time.
func (s *starter) sought(t *testing.T, n int, to time.Time) {
	t.Helper()
	if len(s.seeks.to) != n {
		t.Fatalf("%d seeks, want %d", len(s.seeks.to), n)
	}
	if n > 0 && s.seeks.to[n-1].Sub(to).Abs() > time.Minute {
		t.Errorf("the seek is to %v, want %v", s.seeks.to[n-1], to)
	}
}

// Instances of a deployment that start at once, and later, seek once together. The next
// deployment seeks again.
func TestADeploymentSeeksOnce(t *testing.T) {
	s := newStarter(t)
	s.start(t, "none", Start{Earliest: true})
	s.sought(t, 1, time.Now().Add(-7*24*time.Hour))
	s.pass(t, 60*24*time.Hour)

	var instances sync.WaitGroup
	for range 8 {
		instances.Go(func() { s.start(t, "one", Start{Earliest: true}) })
	}
	instances.Wait()
	s.start(t, "one", Start{Earliest: true})
	s.sought(t, 2, time.Now().Add(-7*24*time.Hour))

	s.pass(t, 60*24*time.Hour)
	s.start(t, "two", Start{Back: 30 * time.Minute})
	s.sought(t, 3, time.Now().Add(-40*time.Minute))
	s.start(t, "two", Start{Back: 30 * time.Minute})
	s.sought(t, 3, time.Now().Add(-40*time.Minute))
}

// A deployment that finds no position to go back from does not seek, nor do its later
// instances, which find the position of the first one: its backlog may be older.
func TestAFirstDeploymentKeepsItsBacklog(t *testing.T) {
	s := newStarter(t)
	s.start(t, "one", Start{Back: 10 * time.Minute})
	s.save(t, time.Now())
	s.start(t, "one", Start{Back: 10 * time.Minute})
	s.start(t, "two", Start{Back: 10 * time.Minute})
	s.sought(t, 0, time.Time{})
	s.pass(t, 16*24*time.Hour) // longer than the subscription keeps a message
	s.start(t, "three", Start{Back: 10 * time.Minute})
	s.sought(t, 1, time.Now().Add(-20*time.Minute))
}

// Deployments that seek back, one soon after the other, do not go further back each time.
func TestDeploymentsDoNotAddUp(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	for i := range 9 {
		before := len(s.seeks.to)
		s.start(t, fmt.Sprintf("hourly %d", i), Start{Back: 10 * time.Minute})
		if sought := len(s.seeks.to) > before; sought != (i%2 == 0) {
			t.Errorf("deployment %d: sought = %t, want a seek only when the one before is more than an hour ago", i, sought)
		}
		s.save(t, time.Now())
		if ago := time.Since(s.seeks.to[len(s.seeks.to)-1]); ago > 3*time.Hour {
			t.Errorf("deployment %d: the last seek was to %v ago", i, ago)
		}
		s.pass(t, 55*time.Minute)
	}
	for _, to := range s.seeks.to {
		if to.Before(time.Now().Add(-10 * time.Hour)) {
			t.Errorf("a seek to %v", to)
		}
	}
}

// A consumer that lags looks like a replay, and is none: a deployment seeks back from its position.
func TestADeploymentOfAConsumerThatLags(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now().Add(-30*time.Minute))
	s.start(t, "one", Start{Back: 10 * time.Minute})
	s.sought(t, 1, time.Now().Add(-50*time.Minute))
}

// Deployments whose consumer never works, one after the other, do not move the group's position to the present:
// a seek to there would acknowledge all that was published meanwhile.
func TestDeploymentsWithoutAConsumer(t *testing.T) {
	s := newStarter(t)
	last := time.Now()
	s.save(t, last)
	for i := range 5 {
		s.start(t, fmt.Sprint(i), Start{Back: 10 * time.Minute})
		at, err := s.offsets.Load(t.Context())
		if err != nil || at.SafePosition.After(last) {
			t.Errorf("deployment %d: the safe position is %v after the last save (%v)", i, at.SafePosition.Sub(last), err)
		}
		for _, to := range s.seeks.to {
			if to.After(last) {
				t.Fatalf("deployment %d: a seek to %v after the last save", i, to.Sub(last))
			}
		}
		s.age(t, 40*time.Minute)
		last = last.Add(-40 * time.Minute)
		s.seeks.to = nil
	}
}

// A replay of a week may go on for as long: a deployment soon after it does not seek back from within.
func TestADeploymentDuringALongReplay(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	s.start(t, "one", Start{Earliest: true})
	s.pass(t, 24*time.Hour)
	s.start(t, "two", Start{Back: 10 * time.Minute})
	s.sought(t, 1, time.Now().Add(-7*24*time.Hour))
	s.pass(t, 7*24*time.Hour)
	s.start(t, "three", Start{Back: 10 * time.Minute})
	s.sought(t, 2, time.Now().Add(-20*time.Minute))
}

// A reset gives up what is older than its time: no deployment brings it back.
func TestAResetIsKnownToDeployments(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	s.start(t, "one", Start{Earliest: true})
	if err := s.offsets.Reset(t.Context(), s.client, time.Now(), true, audit.Actor{By: "ada"}); err != nil {
		t.Fatal(err)
	}
	s.save(t, time.Now())
	at, err := s.offsets.Load(t.Context())
	if err != nil || time.Since(at.SafePosition) > time.Hour {
		t.Errorf("after the reset the safe position is %v (%v)", at.SafePosition, err)
	}
	s.start(t, "one", Start{Earliest: true})
	s.start(t, "two", Start{Back: 10 * time.Minute})
	s.sought(t, 3, time.Now().Add(-20*time.Minute))
}

// A replay of the subscription that the group had before holds no seek of the present one up.
func TestAReplayOfAFormerSubscription(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	_, err := s.admin.Exec(t.Context(), `
		INSERT INTO catalog.engagement_offsets (consumer_group, instance, source, subscription, message_id, publish_time, lag_millis, updated_by)
		SELECT consumer_group, 'reset', 'reset', 'former', '', now() - interval '7 days', 0, 'ada' FROM catalog.engagement_offsets`)
	if err != nil {
		t.Fatal(err)
	}
	s.start(t, "one", Start{Back: 10 * time.Minute})
	s.sought(t, 1, time.Now().Add(-20*time.Minute))
}

// A reset to behind the safe position gives messages up, also if an instance has saved a later position.
func TestAResetBehindAnEventThatWaits(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	_, err := s.admin.Exec(t.Context(), `
		INSERT INTO catalog.inbox (consumer, event_id, event_type, aggregate_type, aggregate_id, version, message_id, publish_time, status)
		VALUES ($1, gen_random_uuid(), 'EngagementChanged', 'engagement', 'a', 1, 'm', now() - interval '1 hour', 'held')`, EngagementSubscription)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.offsets.Reset(t.Context(), s.client, time.Now().Add(-30*time.Minute), false, audit.Actor{By: "ada"}); !errors.Is(err, checkpoint.ErrDiscards) {
		t.Errorf("%v, want %v", err, checkpoint.ErrDiscards)
	}
	s.sought(t, 0, time.Time{})
}

// A reset of one group leaves the rows of the others, of deployments, too.
func TestAResetLeavesOtherGroups(t *testing.T) {
	s := newStarter(t)
	other := EngagementOffsets
	other.Group, other.Subscription = "another", topics.Subscription(topics.Video, "catalog")
	mine := s.offsets
	s.offsets = checkpoint.New(s.pool, other, "host", quiet())
	s.save(t, time.Now())
	s.start(t, "one", Start{Earliest: true})
	before, err := s.offsets.Rows(t.Context())
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := mine.Reset(t.Context(), s.client, time.Now(), true, audit.Actor{By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if after, err := s.offsets.Rows(t.Context()); err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("%+v, %v; want %+v", after, err, before)
	}
}

// A deployment that starts during a reset waits for it, and then starts from where that has
// moved the group: a replay that an operator asked for is not acknowledged.
func TestAStartWaitsForAReset(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	started := make(chan struct{})
	s.seeks.before = func() {
		s.seeks.before = nil
		go func() {
			defer close(started)
			s.start(t, "one", Start{Back: 10 * time.Minute})
		}()
		s.awaitLock(t, started)
	}
	if err := s.offsets.Reset(t.Context(), s.client, time.Now().Add(-24*time.Hour), false, audit.Actor{By: "ada"}); err != nil {
		t.Fatal(err)
	}
	<-started
	s.sought(t, 1, time.Now().Add(-24*time.Hour))
}

// A reset whose seek has no answer, or that is killed behind its seek, may have begun a replay. No deployment acknowledges the
// messages of the replay, and the reset can be repeated.
func TestAResetWithoutAnAnswer(t *testing.T) {
	s := newStarter(t)
	s.save(t, time.Now())
	ago := time.Now().Add(-24 * time.Hour)
	s.seeks.lost = true
	err := s.offsets.Reset(t.Context(), s.client, ago, false, audit.Actor{By: "ada"})
	if err == nil || !strings.Contains(err.Error(), "may have moved") {
		t.Errorf("a reset without an answer: %v", err)
	}
	s.seeks.lost = false
	s.pass(t, time.Minute)
	s.start(t, "one", Start{Back: 10 * time.Minute})
	s.sought(t, 1, ago)
	if err := s.offsets.Reset(t.Context(), s.client, ago.Add(-time.Minute), false, audit.Actor{By: "ada"}); err != nil { // the minute that has passed
		t.Error(err)
	}
	s.sought(t, 2, ago.Add(-time.Minute))
}

// Two instances have saved. The database's clock was set back since, and one of the two works on, far behind. Its messages
// are not given up, and its row is not forgotten, although the other row looks as if time had passed.
func TestASafePositionAfterTheClockWasSetBack(t *testing.T) {
	s := newStarter(t)
	behind := time.Now().Add(-2 * time.Hour)
	s.save(t, behind)
	_, err := s.admin.Exec(t.Context(), `
		INSERT INTO catalog.engagement_offsets (consumer_group, instance, subscription, message_id, publish_time, lag_millis, updated_at, updated_by)
		SELECT consumer_group, 'dead', subscription, 'm', now() - interval '1 minute', 0, now() + interval '9 days', '' FROM catalog.engagement_offsets`)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := s.offsets.Load(t.Context()); err != nil || at.SafePosition.After(behind) {
		t.Errorf("the safe position is %v, %v, and an instance is at %v", at.SafePosition, err, behind)
	}
	if err := s.offsets.Reset(t.Context(), s.client, behind.Add(time.Hour), false, audit.Actor{By: "ada"}); !errors.Is(err, checkpoint.ErrDiscards) {
		t.Errorf("%v, want %v", err, checkpoint.ErrDiscards)
	}
	if err := s.offsets.Forget(t.Context()); err != nil {
		t.Error(err)
	}
	if rows, err := s.offsets.Rows(t.Context()); err != nil || len(rows) != 2 {
		t.Errorf("%+v, %v are left, want both", rows, err)
	}
}

// awaitLock returns when a session waits for an advisory lock, or when done is closed.
func (s *starter) awaitLock(t *testing.T, done <-chan struct{}) {
	t.Helper()
	for waits := false; !waits; {
		select {
		case <-done:
			return
		default:
		}
		err := s.admin.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`).Scan(&waits)
		if err != nil {
			t.Error(err)
			return
		}
	}
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
			topic := &pubsubpb.Topic{Name: topics.InProject("test", topics.Engagement)}
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
		Topic:      &pubsubpb.Topic{Name: "projects/test/topics/" + topics.Engagement, MessageRetentionDuration: durationpb.New(20 * 24 * time.Hour)},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"message_retention_duration"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if log := warns(8 * 24 * time.Hour); strings.Count(log, "level=ERROR") != 1 || !strings.Contains(log, "replayable=480h0m0s") {
		t.Errorf("a topic that keeps 20 days: %s", log)
	}
	if r, err := checkpoint.ReadRetention(t.Context(), client, EngagementSubscription); err != nil || r.Oldest != 20*24*time.Hour {
		t.Errorf("a topic that keeps 20 days: %+v, %v", r, err)
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
