package queue_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// box is one outbox.
type box struct {
	queue.Queue
	db *pgxpool.Pool
}

func newBox(t *testing.T) box {
	t.Helper()
	_, b := newBoxBehind(t, false)
	return b
}

// newBoxBehind returns a database, and its queue, which is behind a transaction pooler if pooled says so.
func newBoxBehind(t *testing.T, pooled bool) (*pgtest.DB, box) {
	t.Helper()
	pg := pgtest.New(t)
	url := pg.URL
	if pooled {
		url = pg.Pooled(t, url)
	}
	db := pg.Pool(t, url)
	return pg, box{queue.New(db), db}
}

var plenty = queue.Claim{Aggregates: 100, Events: 1000, PerAggregate: 20, Bytes: 1 << 20}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, Payload: []byte(strconv.FormatInt(version, 10)),
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), Epoch: eventing.FirstEpoch,
	}
}

// append commits versions from..to of an aggregate, each in a transaction.
func (b box) append(t *testing.T, aggregate string, from, to int64) {
	t.Helper()
	for v := from; v <= to; v++ {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			return outbox.Append(t.Context(), tx, nil, event(aggregate, v))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (b box) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	pgtest.Exec(t, b.db, sql, args...)
}

func (b box) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	return pgtest.Value[int](t, b.db, query, args...)
}

func (b box) snapshot(t *testing.T) queue.TxSnapshot {
	t.Helper()
	s := pgtest.Value[string](t, b.db, `SELECT pg_current_snapshot()::text`)
	return queue.TxSnapshot(s)
}

// scan claims from the beginning, and returns the versions per aggregate.
func (b box) scan(t *testing.T, token string) map[string][]int64 {
	t.Helper()
	return versions(b.page(t, as(token)).Batches)
}

// page is the first page of a scan from the beginning.
func (b box) page(t *testing.T, c queue.Claim) queue.Page {
	t.Helper()
	p, err := b.Scan(t.Context(), c, queue.Beginning.Since()[0], 5000)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// as claims plenty for token.
func as(token string) queue.Claim {
	c := plenty
	c.Token = token
	return c
}

func (b box) claimNew(t *testing.T, token string, since queue.TxSnapshot, after ...queue.AggregateVersion) map[string][]int64 {
	t.Helper()
	c, err := b.ClaimNew(t.Context(), as(token), since, after)
	if err != nil {
		t.Fatal(err)
	}
	return versions(c.Batches)
}

func versions(batches []queue.Batch) map[string][]int64 {
	got := map[string][]int64{}
	for _, batch := range batches {
		for _, e := range batch {
			got[e.AggregateID] = append(got[e.AggregateID], e.Version)
		}
	}
	return got
}

func want(t *testing.T, what string, want, got map[string][]int64) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

type claims = map[string][]int64

func TestClaimOwnsTheAggregate(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	start := b.snapshot(t)
	b.append(t, "a", 1, 3)
	want(t, "first", claims{"a": {1, 2, 3}}, b.scan(t, "first"))
	b.append(t, "a", 4, 4)
	b.append(t, "b", 1, 1)
	want(t, "what is new, to another relay", claims{"b": {1}}, b.claimNew(t, "second", start))
	want(t, "a scan of another relay", claims{}, b.scan(t, "second"))
}

func TestClaimTakesOverAfterTheLease(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	b.scan(t, "dead")
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval WHERE lock_token IS NOT NULL`, queue.LeaseTime-time.Second)
	want(t, "before the lease ran out", claims{}, b.scan(t, "early"))
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval WHERE lock_token IS NOT NULL`, queue.LeaseTime+time.Second)
	want(t, "after the lease ran out", claims{"a": {1, 2}}, b.scan(t, "successor"))
}

func TestClaimsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for i := range 5 {
		b.append(t, fmt.Sprint("a", i), 1, 4)
	}
	free := func() { b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`) }
	for name, tc := range map[string]struct {
		limits queue.Claim
		events int
	}{
		"aggregates":    {queue.Claim{Token: "t", Aggregates: 2, Events: 100, PerAggregate: 100, Bytes: 1 << 20}, 8},
		"events":        {queue.Claim{Token: "t", Aggregates: 100, Events: 7, PerAggregate: 100, Bytes: 1 << 20}, 7},
		"per aggregate": {queue.Claim{Token: "t", Aggregates: 100, Events: 100, PerAggregate: 3, Bytes: 1 << 20}, 15},
		"bytes":         {queue.Claim{Token: "t", Aggregates: 100, Events: 100, PerAggregate: 100, Bytes: 6}, 6},
	} {
		w := b.page(t, tc.limits)
		n := 0
		for _, r := range w.Batches {
			for i, e := range r {
				if e.Version != int64(i+1) {
					t.Errorf("%s: %s has a hole at %d", name, e.AggregateID, i)
				}
			}
			n += len(r)
		}
		if n != tc.events || w.Truncated != (name != "per aggregate") {
			t.Errorf("%s: %d events, cut %v; want %d", name, n, w.Truncated, tc.events)
		}
		leased := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token = 't'`)
		if leased != len(w.Batches) {
			t.Errorf("%s: %d leases for %d batches", name, leased, len(w.Batches))
		}
		free()
	}
}

func TestClaimLeavesTypesAlone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	start := b.snapshot(t)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	b.append(t, "c", 1, 1)
	b.exec(t, `UPDATE outbox SET aggregate_type = 'engagement' WHERE aggregate_id <> 'c'`)
	limits := as("t")
	limits.Without = []string{"engagement"}
	w := b.page(t, limits)
	want(t, "scan", claims{"c": {1}}, versions(w.Batches))
	limits.Without = []string{"video"}
	c, err := b.ClaimNew(t.Context(), limits, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "fresh", claims{"a": {1}, "b": {1}}, versions(c.Batches))
}

func TestClaimWaitsForRetryAndParked(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "later", 1, 2)
	b.append(t, "parked", 1, 2)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '4 minutes' WHERE aggregate_id = 'later' AND version = 1`)
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE aggregate_id = 'parked' AND version = 1`)
	want(t, "behind events that wait", claims{}, b.scan(t, "t"))
	got, next, err := b.ClaimRetries(t.Context(), as("t"))
	if err != nil || len(got.Batches) > 0 || next < 3*time.Minute || next > 4*time.Minute {
		t.Errorf("claimed %v, next retry in %s, %v; want 4 minutes", got.Batches, next, err)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'later' AND version = 1`)
	got, next, err = b.ClaimRetries(t.Context(), as("t"))
	if err != nil || next != 0 {
		t.Errorf("next retry in %s, %v", next, err)
	}
	want(t, "when the retry is due", claims{"later": {1, 2}}, versions(got.Batches))
}

// A failover to a host with a slow clock leaves leases and retry times in the future. They
// count as none: otherwise they would last that much longer.
func TestTimesFromTheFutureCountAsNone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "leased", 1, 1)
	b.append(t, "retried", 1, 1)
	b.scan(t, "dead")
	b.exec(t, `UPDATE outbox SET locked_at = now() + interval '40 seconds'`)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '6 minutes' WHERE aggregate_id = 'retried'`)
	got, _, err := b.ClaimRetries(t.Context(), as("successor"))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "retries", claims{"retried": {1}}, versions(got.Batches))
	want(t, "a scan", claims{"leased": {1}}, b.scan(t, "successor"))
}

// A person may write an infinite retry time by hand. It counts as due, and keeps no other retry from being claimed.
func TestAnInfiniteRetryTimeIsDue(t *testing.T) {
	t.Parallel()
	for _, infinity := range []string{"infinity", "-infinity"} {
		b := newBox(t)
		b.append(t, "by hand", 1, 1)
		b.append(t, "due", 1, 1)
		b.exec(t, `UPDATE outbox SET next_retry_at = CASE aggregate_id WHEN 'due' THEN now() ELSE $1::text::timestamptz END`, infinity)
		got, next, err := b.ClaimRetries(t.Context(), as("t"))
		if err != nil || next != 0 {
			t.Errorf("%s: next retry in %s, %v", infinity, next, err)
		}
		want(t, infinity, claims{"by hand": {1}, "due": {1}}, versions(got.Batches))
	}
}

// leaseDuring starts claim, keeps its transaction waiting for more than a second, and leases all
// events to a living relay before the claim goes on.
func leaseDuring(t *testing.T, pg *pgtest.DB, claim func()) {
	t.Helper()
	db := pg.Pool(t, pg.URL)
	other := pgtest.Begin(t, db)
	defer func() { _ = other.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, other, `LOCK TABLE outbox`)
	ended := make(chan struct{})
	go func() { defer close(ended); claim() }()
	for waited := false; !waited; { // in transactions of their own, because each sees one state of the view
		waited = pgtest.Value[bool](t, db, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND clock_timestamp() - xact_start > interval '1.1 s')`)
		select {
		case <-ended:
			t.Fatal("the claim has not waited")
		default:
		}
	}
	pgtest.Exec(t, other, `UPDATE outbox SET lock_token = 'alive', locked_at = clock_timestamp()`)
	pgtest.End(t, other.Commit)
}

// A claim begins, and waits for more than a second before it looks at the rows. A lease that
// begins meanwhile is after the begin of the claim, but not from the future.
func TestASlowClaimTakesNoLeaseThatBeginsMeanwhile(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL+"&pool_max_conns=1")
	b := box{queue.New(db), db}
	b.append(t, "new", 1, 1)
	b.append(t, "retried", 1, 1)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'retried'`)
	c := as("slow")
	c.Alive = []string{"alive"}
	for name, claim := range map[string]func() (queue.Claimed, error){
		"new events": func() (queue.Claimed, error) { return b.ClaimNew(t.Context(), c, queue.Beginning, nil) },
		"retries":    func() (got queue.Claimed, err error) { got, _, err = b.ClaimRetries(t.Context(), c); return got, err },
		"a scan":     func() (queue.Claimed, error) { return b.page(t, c).Claimed, nil },
	} {
		if got, err := claim(); err != nil || len(got.Batches) == 0 { // from here on the connection has the statement
			t.Fatalf("%s: claimed %v, %v", name, got.Batches, err)
		}
		b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`)
		ended := make(chan queue.Claimed, 1)
		leaseDuring(t, pg, func() {
			got, err := claim()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ended <- got
		})
		if got := <-ended; len(got.Batches) > 0 || got.Skipped {
			t.Errorf("%s: claimed %v, skipped %v, want nothing of a relay that is alive", name, got.Batches, got.Skipped)
		}
		b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`)
	}
}

// A claim reports a head that is leased to no living relay and that the claim cannot take.
// The claiming relay must try it again.
func TestClaimReportsWhatItHadToLeave(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	if p := b.page(t, as("alive")); p.Skipped || len(p.Batches) != 1 {
		t.Fatalf("claimed %+v", p)
	}
	other := as("other")
	other.Alive = []string{"alive"}
	if p := b.page(t, other); p.Skipped || len(p.Batches) > 0 {
		t.Errorf("what a relay that is alive has in hand: %+v", p)
	}
	if p := b.page(t, as("other")); !p.Skipped || p.FreeIn <= 0 || p.FreeIn > queue.LeaseTime {
		t.Errorf("what a relay that is not alive has in hand: %+v", p)
	}
	for what, set := range map[string]string{
		"a row":                                 `lock_token = NULL, locked_at = NULL`,
		"a lost lease of a relay that is alive": `lock_token = 'alive', locked_at = now() - interval '1 hour'`,
		"one from the future":                   `lock_token = 'alive', locked_at = now() + interval '1 hour'`,
	} {
		b.exec(t, `UPDATE outbox SET `+set+` WHERE version = 1`)
		tx := pgtest.Begin(t, b.db)
		pgtest.Exec(t, tx, `SELECT FROM outbox FOR UPDATE`)
		if p := b.page(t, other); !p.Skipped || p.FreeIn != 0 || len(p.Batches) > 0 {
			t.Errorf("%s that another transaction has locked: %+v", what, p)
		}
		pgtest.End(t, tx.Rollback)
	}
}

// Two aggregates with names that look alike when joined stay two.
func TestBatchesOfLookAlikeAggregates(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "x", 1, 2)
	b.exec(t, `UPDATE outbox SET aggregate_type = 'order', aggregate_id = 'item/7', id = '00000000-0000-7000-8000-000000000001' WHERE version = 1`)
	b.exec(t, `UPDATE outbox SET aggregate_type = 'order/item', aggregate_id = '7', id = '00000000-0000-7000-8000-000000000002', version = 1
		WHERE version = 2`)
	if p := b.page(t, as("t")); len(p.Batches) != 2 {
		t.Errorf("%d batches of two aggregates: %v", len(p.Batches), p.Batches)
	}
}

func settle(t *testing.T, b box, token string, outcomes ...queue.Settlement) (lost int) {
	t.Helper()
	s, err := b.Settle(context.WithoutCancel(t.Context()), token, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return len(s.Lost)
}
