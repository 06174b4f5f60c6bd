package queue_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestClaimNewFindsEventsCommittedSince(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "old", 1, 1)
	slow := pgtest.Begin(t, b.db)
	if err := outbox.Append(t.Context(), slow, nil, event("slow", 1)); err != nil {
		t.Fatal(err)
	}
	// A later transaction commits first.
	b.append(t, "quick", 1, 1)
	since := b.snapshot(t)
	pgtest.End(t, slow.Commit)
	b.append(t, "new", 1, 1)
	want(t, "since the snapshot", claims{"slow": {1}, "new": {1}}, b.claimNew(t, "t", since))
}

func TestClaimNewFollowsPublishedVersions(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 2)
	w := b.page(t, as("t"))
	b.append(t, "a", 3, 3)
	settle(t, b, "t", queue.Settlement{Batch: w.Batches[0], Published: 2})
	want(t, "after the published versions", claims{"a": {3}}, b.claimNew(t, "t", b.snapshot(t), w.Batches[0].Last()))
}

// A restore into another cluster brings rows with transaction ids that this one will
// not reach for years. They are not new with each claim until then.
func TestClaimNewKnowsRowsOfAnotherCluster(t *testing.T) {
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
	c, err := b.ClaimNew(t.Context(), as("t"), since, nil)
	if err != nil || c.Truncated {
		t.Errorf("a claim of one event is cut, hence followed by the next at once, for ever (%v)", err)
	}
	if diff := cmp.Diff(map[string][]int64{"new": {1}}, versions(c.Batches)); diff != "" {
		t.Errorf("(-want +claimed)\n%s", diff)
	}
	b.exec(t, `UPDATE outbox SET parked_at = NULL`)
	if got := b.scan(t, "t"); len(got["stuck"]) != plenty.PerAggregate {
		t.Errorf("a scan claims %v, want the restored ones", got)
	}
}

// A claim reads no more than 2,000 new rows. If it may have left rows out, it says so. Otherwise no scan
// would look for them.
func TestClaimNewSaysThatItHasNotReadAllRows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	since := b.snapshot(t)
	var stuck []eventing.Event
	for v := range int64(2000) {
		stuck = append(stuck, event("stuck", v+1))
	}
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, stuck...) })
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE version = 1`)
	b.append(t, "new", 1, 1)
	if c, err := b.ClaimNew(t.Context(), as("t"), since, nil); err != nil || !c.Truncated || len(c.Batches) != 0 {
		t.Errorf("%d batches, truncated: %t, %v", len(c.Batches), c.Truncated, err)
	}
}
