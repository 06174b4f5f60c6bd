package outbox

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/history"
	"example.com/lockstep/internal/pgtest"
)

// TestUnderALongTransaction publishes rows under a transaction that keeps vacuum away,
// and then lets relays work there: new events leave, and so do those of a relay that
// was killed, although nothing of the dead entries was ever cleaned.
//
// LOCKSTEP_FULL=1 takes 9,000,000 rows and prints how long commits waited for their
// publishes, with the snapshot and without; `make crash` sets it.
func TestUnderALongTransaction(t *testing.T) {
	t.Parallel()
	rows, samples := 100_000, 20
	if os.Getenv("LOCKSTEP_FULL") != "" {
		rows, samples = 9_000_000, 600
	}
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	admin := pg.Pool(t, pg.Admin)
	session, err := admin.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	// A failure must not leave the pool waiting for it.
	defer func() { _ = session.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, session, `SELECT count(*) FROM app.outbox`)
	b.publishedRows(t, rows)

	// One relay dies with a lease; the broker has not answered it.
	log, path := history.New(t)
	broker := newChaos(t, log)
	broker.hang.Store(true)
	dying := (&historyRun{url: pg.URL, log: log, path: path, broker: broker}).spawn(t, false)
	b.append(t, "orphan", 1, 3)
	b.eventually(t, 1, leased)
	if err := dying.Stop(syscall.SIGKILL, patience); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	// The process that died has written events, too, as many as it had time for. So only the event that
	// commitToPublish waits for is reported.
	var awaited atomic.Value
	acknowledged := make(chan string, 1)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		err := send(ctx)
		if key := req.Messages[0].OrderingKey; err == nil && awaited.CompareAndSwap(key, "") {
			acknowledged <- key
		}
		return err
	})
	r := b.newRelay(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	defer func() { stop(); <-ended }()
	held := b.commitToPublish(t, r, samples, &awaited, acknowledged)
	b.eventually(t, 0, unpublished+` AND xact >= '`+b.since+`'::xid8`)
	t.Logf("%d rows published under a held snapshot: the events of a killed relay left %s after its end", rows, time.Since(killed))
	firstSightings(t, b.sent("orphan"), 3)

	pgtest.End(t, session.Rollback)
	pgtest.Exec(t, admin, `VACUUM app.outbox`)
	clean := b.commitToPublish(t, r, samples, &awaited, acknowledged)
	for name, took := range map[string][]time.Duration{"held": held, "released and vacuumed": clean} {
		t.Logf("commit to publish, snapshot %s: p50 %s, p99 %s, max %s", name, took[samples/2], took[samples*99/100], took[samples-1])
	}
}

// publishedRows inserts rows and publishes them by updates, as relays do: a lease and
// a mark each.
func (b *bench) publishedRows(t *testing.T, rows int) {
	t.Helper()
	const each = 5_000 // a statement ends within its time limit on a busy machine, too
	low := pgtest.Value[string](t, b.db, `SELECT pg_current_xact_id()::text`)
	for done := 0; done < rows; done += each {
		b.exec(t, `
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			SELECT gen_random_uuid(), 'video', 'old-' || ($1::int + n), 'VideoUpdated', 1, '' FROM generate_series(1, $2::int) n`, done, min(each, rows-done))
		b.exec(t, `UPDATE outbox SET lock_token = 'old', locked_at = now() WHERE xact > $1::text::xid8`, low)
		b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL, published_at = now() WHERE xact > $1::text::xid8`, low)
		low = pgtest.Value[string](t, b.db, `SELECT pg_current_xact_id()::text`)
	}
	b.since = low
	// The relays that published them had finished.
	b.exec(t, `DELETE FROM outbox_relays`)
	b.exec(t, `INSERT INTO outbox_relays (token, low, seen_at) VALUES ('old', pg_current_snapshot(), '-infinity')`)
}

// commitToPublish commits events one after the other, each when the one before was
// published, and returns how long they took, in order.
func (b *bench) commitToPublish(t *testing.T, r *Relay, n int, awaited *atomic.Value, acknowledged <-chan string) []time.Duration {
	t.Helper()
	var took []time.Duration
	timeout := time.After(time.Duration(n)*time.Second + patience)
	for range n {
		key := uuid.NewString()
		awaited.Store(key)
		b.append(t, key, 1, 1)
		start := time.Now()
		r.Wake()
		select {
		case <-acknowledged:
		case <-timeout:
			t.Fatal("a new event has not left")
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took
}

// Everything but the claims may fail: the table of relays is locked, so no relay can show
// that it is alive, and the backlog is not known. New events leave.
func TestNewEventsLeaveWhileAllElseFails(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	r := b.newRelay(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	defer func() { stop(); <-ended }()
	b.append(t, "a", 1, 1)
	b.eventually(t, 0, unpublished)
	b.poll(t, func() bool { return r.backlog.Load().known() == 1 }, "the backlog was never known")
	tx := pgtest.Begin(t, pg.Pool(t, pg.Admin))
	pgtest.Exec(t, tx, `LOCK TABLE app.outbox_relays IN ACCESS EXCLUSIVE MODE`)
	var unknown atomic.Bool
	for v := int64(2); !unknown.Load(); v++ {
		b.append(t, "a", v, v)
		r.Wake()
		b.eventually(t, 0, unpublished)
		unknown.Store(r.backlog.Load().known() == 0)
	}
	if n := r.failures.Load(); n != 0 {
		t.Errorf("%d failures of the database in a row", n)
	}
	pgtest.End(t, tx.Rollback)
}

// A row was changed by hand, and no relay has a reason to scan for it. The sweep through
// the table finds it.
func TestSweepFindsRowsWithoutARelay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 2)
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	b.exec(t, `UPDATE outbox SET published_at = NULL`)
	b.eventually(t, 0, unpublished)
	if got := b.sent("a"); !slices.Equal(got, []int64{1, 2, 1, 2}) {
		t.Errorf("sent %v", got)
	}
}
