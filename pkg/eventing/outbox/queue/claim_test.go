package queue_test

import (
	"context"
	"fmt"
	"maps"
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
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.VideoURL)
	return box{queue.New(db), db}
}

var plenty = queue.Limits{Aggregates: 100, Events: 1000, PerAggregate: 20, Bytes: 1 << 20}

func event(aggregate string, version int64) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: aggregate, Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, Payload: []byte(strconv.FormatInt(version, 10)),
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), Epoch: eventing.Epoch,
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
	if _, err := b.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (b box) count(t *testing.T, query string, args ...any) int {
	t.Helper()
	var n int
	if err := b.db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (b box) snapshot(t *testing.T) queue.Snapshot {
	t.Helper()
	var s string
	if err := b.db.QueryRow(t.Context(), `SELECT pg_current_snapshot()::text`).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return queue.Snapshot(s)
}

// walk claims from the beginning, and returns the versions per aggregate.
func (b box) walk(t *testing.T, token string) map[string][]int64 {
	t.Helper()
	w, err := b.Walk(t.Context(), token, plenty, queue.Position{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return versions(w.Runs)
}

func (b box) fresh(t *testing.T, token string, since queue.Snapshot, after ...queue.Position) map[string][]int64 {
	t.Helper()
	c, err := b.Fresh(t.Context(), token, plenty, since, after)
	if err != nil {
		t.Fatal(err)
	}
	return versions(c.Runs)
}

func versions(runs []queue.Run) map[string][]int64 {
	got := map[string][]int64{}
	for _, run := range runs {
		for _, e := range run {
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
	want(t, "first", claims{"a": {1, 2, 3}}, b.walk(t, "first"))
	b.append(t, "a", 4, 4)
	b.append(t, "b", 1, 1)
	want(t, "what is new, to another relay", claims{"b": {1}}, b.fresh(t, "second", start))
	want(t, "a walk of another relay", claims{}, b.walk(t, "second"))
}

func TestClaimTakesOverAfterTheLease(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	b.walk(t, "dead")
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval WHERE lock_token IS NOT NULL`, queue.LeaseTime-time.Second)
	want(t, "before the lease ran out", claims{}, b.walk(t, "early"))
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval WHERE lock_token IS NOT NULL`, queue.LeaseTime+time.Second)
	want(t, "after the lease ran out", claims{"a": {1, 2}}, b.walk(t, "heir"))
}

func TestFreshSeesWhatCommittedSince(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "old", 1, 1)
	slow, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := outbox.Append(t.Context(), slow, nil, event("slow", 1)); err != nil {
		t.Fatal(err)
	}
	// A later transaction commits first.
	b.append(t, "quick", 1, 1)
	since := b.snapshot(t)
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.append(t, "new", 1, 1)
	want(t, "since the snapshot", claims{"slow": {1}, "new": {1}}, b.fresh(t, "t", since))
}

func TestFreshFollowsWhatWasPublished(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	w, err := b.Walk(t.Context(), "t", plenty, queue.Position{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	b.append(t, "a", 3, 3)
	settle(t, b, "t", queue.Outcome{Run: w.Runs[0], Published: 2})
	want(t, "after the published versions", claims{"a": {3}}, b.fresh(t, "t", b.snapshot(t), w.Runs[0].Last()))
}

func TestClaimsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for i := range 5 {
		b.append(t, fmt.Sprint("a", i), 1, 4)
	}
	free := func() { b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`) }
	for name, tc := range map[string]struct {
		limits queue.Limits
		events int
	}{
		"aggregates":    {queue.Limits{Aggregates: 2, Events: 100, PerAggregate: 100, Bytes: 1 << 20}, 8},
		"events":        {queue.Limits{Aggregates: 100, Events: 7, PerAggregate: 100, Bytes: 1 << 20}, 7},
		"per aggregate": {queue.Limits{Aggregates: 100, Events: 100, PerAggregate: 3, Bytes: 1 << 20}, 15},
		"bytes":         {queue.Limits{Aggregates: 100, Events: 100, PerAggregate: 100, Bytes: 6}, 6},
	} {
		w, err := b.Walk(t.Context(), "t", tc.limits, queue.Position{}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, r := range w.Runs {
			for i, e := range r {
				if e.Version != int64(i+1) {
					t.Errorf("%s: %s has a hole at %d", name, e.AggregateID, i)
				}
			}
			n += len(r)
		}
		if n != tc.events || w.Cut != (name != "per aggregate") {
			t.Errorf("%s: %d events, cut %v; want %d", name, n, w.Cut, tc.events)
		}
		leased := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token = 't'`)
		if leased != len(w.Runs) {
			t.Errorf("%s: %d leases for %d runs", name, leased, len(w.Runs))
		}
		free()
	}
}

func TestWalkGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	for i := range 5 {
		b.append(t, fmt.Sprint("a", i), 1, 1)
	}
	seen := claims{}
	var at queue.Position
	for page := 1; ; page++ {
		w, err := b.Walk(t.Context(), "t", plenty, at, 2)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(seen, versions(w.Runs))
		if w.Done {
			if page != 3 {
				t.Errorf("%d pages of 2 for 5 aggregates", page)
			}
			break
		}
		at = w.Next
	}
	want(t, "all pages", claims{"a0": {1}, "a1": {1}, "a2": {1}, "a3": {1}, "a4": {1}}, seen)
}

func TestClaimLeavesTypesAlone(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	start := b.snapshot(t)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	b.append(t, "c", 1, 1)
	b.exec(t, `UPDATE outbox SET aggregate_type = 'engagement' WHERE aggregate_id <> 'c'`)
	limits := plenty
	limits.Without = []string{"engagement"}
	w, err := b.Walk(t.Context(), "t", limits, queue.Position{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "walk", claims{"c": {1}}, versions(w.Runs))
	limits.Without = []string{"video"}
	c, err := b.Fresh(t.Context(), "t", limits, start, nil)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "fresh", claims{"a": {1}, "b": {1}}, versions(c.Runs))
}

func TestClaimWaitsForRetryAndParked(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "later", 1, 2)
	b.append(t, "parked", 1, 2)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1 hour' WHERE aggregate_id = 'later' AND version = 1`)
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE aggregate_id = 'parked' AND version = 1`)
	w, err := b.Walk(t.Context(), "t", plenty, queue.Position{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "behind events that wait", claims{}, versions(w.Runs))
	if w.RetryIn < 59*time.Minute || w.RetryIn > time.Hour {
		t.Errorf("next retry in %s, want an hour", w.RetryIn)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'later' AND version = 1`)
	want(t, "when the retry is due", claims{"later": {1, 2}}, b.walk(t, "t"))
}

func settle(t *testing.T, b box, token string, outcomes ...queue.Outcome) (lost int) {
	t.Helper()
	s, err := b.Settle(context.WithoutCancel(t.Context()), token, outcomes)
	if err != nil {
		t.Fatal(err)
	}
	return s.Lost
}

// A restore into another cluster brings rows with transaction ids that this one will
// not reach for years. They are not new with each claim until then.
func TestFreshKnowsRowsOfAnotherCluster(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	var stuck []eventing.Event
	for v := range int64(2500) {
		stuck = append(stuck, event("stuck", v+1))
	}
	since := b.snapshot(t)
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, stuck...) })
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox SET xact = '9000000000000'::xid8, parked_at = CASE version WHEN 1 THEN now() END`)
	b.append(t, "new", 1, 1)
	c, err := b.Fresh(t.Context(), "t", plenty, since, nil)
	if err != nil || c.Cut {
		t.Errorf("a claim of one event is cut, hence followed by the next at once, for ever (%v)", err)
	}
	if diff := cmp.Diff(map[string][]int64{"new": {1}}, versions(c.Runs)); diff != "" {
		t.Errorf("(-want +claimed)\n%s", diff)
	}
	b.exec(t, `UPDATE outbox SET parked_at = NULL`)
	if got := b.walk(t, "t"); len(got["stuck"]) != plenty.PerAggregate {
		t.Errorf("a walk claims %v, want the restored ones", got)
	}
}
