package inbox

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/backoff"
)

// outageTime is how long a part is unavailable; LOCKSTEP_OUTAGE=60s is the full form.
func outageTime(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("LOCKSTEP_OUTAGE")
	if s == "" {
		return time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("LOCKSTEP_OUTAGE: %v", err)
	}
	return d
}

// maxComplaints bounds the log of an outage, however long it is: the pauses grow
// to seconds.
func maxComplaints(d time.Duration) int64 { return 20 + int64(d/time.Second) }

// complaints counts the log records that are warnings or worse, and whose message begins with of.
type complaints struct {
	slog.Handler

	of string
	n  atomic.Int64
}

func (c *complaints) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (c *complaints) WithAttrs([]slog.Attr) slog.Handler           { return c }

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, c.of) {
		c.n.Add(1)
	}
	return nil
}

// run runs a consumer that logs to the returned complaints.
func (b *bench) run(t *testing.T, client *pubsub.Client) (*Consumer, *complaints) {
	t.Helper()
	heard := &complaints{}
	h := b.handler(decode)
	c := NewConsumer(b.db, client, subscription, h, slog.New(heard), func() {}, Options{})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return c, heard
}

// nothingLost requires that n events had their effect, none an attempt against it, and that
// no loop retried without a pause.
func (b *bench) nothingLost(t *testing.T, n int, heard *complaints) {
	t.Helper()
	b.eventually(t, n, withDone)
	if got := b.count(t, `SELECT coalesce(sum(effects), 0) FROM model`); got != n {
		t.Errorf("%d effects of %d events", got, n)
	}
	if got := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); got != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters from an outage", got, len(b.deadLettered("")))
	}
	if most := maxComplaints(outageTime(t)); heard.n.Load() > most {
		t.Errorf("%d complaints in the log, at most %d wanted", heard.n.Load(), most)
	}
}

func (b *bench) publishNames(t *testing.T, prefix string, n int) {
	t.Helper()
	for i := range n {
		b.publish(t, event(prefix+string(rune('a'+i)), 1))
	}
}

func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, heard := b.run(t, b.client)
	b.publishNames(t, "before", 10)
	b.eventually(t, 10, withDone)
	admin := b.pg.Pool(t, b.pg.Admin)
	limit := func(n string) {
		t.Helper()
		database := pgtest.Value[string](t, admin, `SELECT current_database()`)
		pgtest.Exec(t, admin, `ALTER DATABASE "`+database+`" CONNECTION LIMIT `+n)
	}
	limit("0") // for all roles but the administrator
	b.pg.Terminate(t)
	b.publishNames(t, "during", 10)
	backoff.Sleep(t.Context(), outageTime(t), nil)
	admin.Reset() // its sessions were ended too
	limit("-1")
	b.publishNames(t, "after", 10)
	b.nothingLost(t, 30, heard)
}

// A consumer that is deployed before its migration waits for it. Otherwise it would
// dead-letter everything.
func TestAMissingMigrationIsWaitedOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	rename := func(from, to string) {
		t.Helper()
		pgtest.Exec(t, admin, `ALTER TABLE app.model RENAME COLUMN `+from+` TO `+to)
	}
	rename("effects", "not_yet")
	c, heard := b.run(t, b.client)
	b.publishNames(t, "before", 10)
	pgtest.Until(t, "all aggregates are blocked", func() bool { return c.blocked.counts[lackingStatement].Load() == 10 })
	rename("not_yet", "effects")
	b.nothingLost(t, 10, heard)
}

func TestOwnerAwayDuringGaps(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, heard := b.run(t, b.client)
	const gaps = 20
	for i := range gaps {
		b.publish(t, event("gap"+string(rune('a'+i)), 2), event("gap"+string(rune('a'+i)), 3))
	}
	b.publishNames(t, "good", 10)
	b.eventually(t, 10, withDone)
	// Visible: in the inbox row, and in a metric.
	b.eventually(t, gaps, `SELECT count(DISTINCT aggregate_id) FROM inbox WHERE status = 'held' AND last_error LIKE 'gap: owner is away%'`)
	if open := c.blocked.counts[openGap].Load(); open != gaps {
		t.Errorf("%d gaps are open, want %d", open, gaps)
	}
	backoff.Sleep(t.Context(), outageTime(t), nil)
	if most := gaps * maxComplaints(outageTime(t)); heard.n.Load() > most {
		t.Errorf("%d complaints about %d gaps", heard.n.Load(), gaps)
	}
	for i := range gaps {
		b.setOwner("gap"+string(rune('a'+i)), 3)
	}
	b.eventually(t, 10+2*gaps, withDone)
	b.eventually(t, gaps, `SELECT count(*) FROM model WHERE version = 3`)
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 || c.blocked.counts[openGap].Load() != 0 {
		t.Errorf("%d attempts, %d gaps still open", n, c.blocked.counts[openGap].Load())
	}
}

func TestBrokerAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := newCable(t, b.server.Addr)
	conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := pubsub.NewClient(t.Context(), "test", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	_, heard := b.run(t, client)
	b.publishNames(t, "before", 10)
	b.eventually(t, 10, withDone)
	p.cut(true)
	b.publishNames(t, "during", 10)
	backoff.Sleep(t.Context(), outageTime(t), nil)
	p.cut(false)
	b.publishNames(t, "after", 10)
	b.nothingLost(t, 30, heard)
}

// A subscription that is missing ends the client's stream for good: the consumer
// says so, and opens another until there is one.
func TestAMissingSubscriptionIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin, name := b.client.SubscriptionAdminClient, "projects/test/subscriptions/"+subscription
	if err := admin.DeleteSubscription(t.Context(), &pubsubpb.DeleteSubscriptionRequest{Subscription: name}); err != nil {
		t.Fatal(err)
	}
	_, heard := b.run(t, b.client)
	pgtest.Until(t, "a log line complains of a subscription that is missing", func() bool { return heard.n.Load() != 0 })
	if _, err := admin.CreateSubscription(t.Context(), &pubsubpb.Subscription{Name: name, Topic: topic, AckDeadlineSeconds: 10}); err != nil {
		t.Fatal(err)
	}
	b.publishNames(t, "after", 3)
	b.nothingLost(t, 3, heard)
}
