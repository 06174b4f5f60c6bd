package outbox

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

// claimVersions claims as token and returns the versions per aggregate.
func (b *bench) claimVersions(t *testing.T, token string) map[string][]int64 {
	t.Helper()
	claimed, err := store{b.db}.claim(t.Context(), token, leaseTime, claimAggregates, claimPerAggregate)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]int64{}
	for _, run := range claimed {
		for _, e := range run {
			got[e.AggregateID] = append(got[e.AggregateID], e.Version)
		}
	}
	return got
}

func TestClaimOwnsTheAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 3)
	if got := b.claimVersions(t, "first")["a"]; len(got) != 3 || got[0] != 1 {
		t.Fatalf("claimed %v, want 1, 2, 3", got)
	}
	b.append(t, "a", 4, 4)
	b.append(t, "b", 1, 1)
	got := b.claimVersions(t, "second")
	if len(got["a"]) != 0 {
		t.Errorf("second relay got %v of an aggregate that the first one leases", got["a"])
	}
	if len(got["b"]) != 1 {
		t.Errorf("second relay got %v of a free aggregate, want version 1", got["b"])
	}
}

func TestClaimTakesOverAfterTheLease(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 2)
	b.claimVersions(t, "dead")
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval`, leaseTime-time.Second)
	if got := b.claimVersions(t, "early"); len(got) != 0 {
		t.Errorf("claimed %v before the lease ran out", got)
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - $1::interval`, leaseTime+time.Second)
	if got := b.claimVersions(t, "heir")["a"]; len(got) != 2 {
		t.Errorf("claimed %v after the lease ran out, want 1 and 2", got)
	}
}

func TestSettleIsFenced(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := store{b.db}
	b.append(t, "a", 1, 1)
	stale, err := s.claim(t.Context(), "stale", leaseTime, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '1 hour'`)
	b.claimVersions(t, "heir")
	id := []uuid.UUID{stale[0][0].ID}
	lost, err := s.settle(t.Context(), "stale", id, []rejection{{id: id[0], reason: "x", park: true}})
	if err != nil || lost != 1 {
		t.Errorf("settle with a lost lease: lost %d, %v; want 1", lost, err)
	}
	if n := b.count(t, unpublished+` AND lock_token = 'heir' AND parked_at IS NULL AND publish_attempts = 0`); n != 1 {
		t.Error("a relay without the lease changed the row")
	}
	if lost, err = s.settle(t.Context(), "heir", id, nil); err != nil || lost != 0 {
		t.Errorf("settle with the lease: lost %d, %v", lost, err)
	}
	if n := b.count(t, unpublished); n != 0 {
		t.Error("the row is not published")
	}
}

func TestRenewKeepsOthersOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 1)
	b.claimVersions(t, "holder")
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '19 seconds'`)
	if n, err := (store{b.db}).renew(t.Context(), "holder"); n != 1 || err != nil {
		t.Fatalf("renew: %d rows, %v", n, err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE locked_at > now() - interval '5 seconds'`); n != 1 {
		t.Error("the lease was not extended")
	}
	if n, err := (store{b.db}).renew(t.Context(), "stranger"); n != 0 || err != nil {
		t.Errorf("renewing what another holds: %d rows, %v", n, err)
	}
}

func TestClaimWaitsForRetryAndParked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "later", 1, 2)
	b.append(t, "parked", 1, 2)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() + interval '1 hour' WHERE aggregate_id = 'later' AND version = 1`)
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE aggregate_id = 'parked' AND version = 1`)
	if got := b.claimVersions(t, "t"); len(got) != 0 {
		t.Errorf("claimed %v behind an event that waits", got)
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE aggregate_id = 'later' AND version = 1`)
	if got := b.claimVersions(t, "t")["later"]; len(got) != 2 {
		t.Errorf("claimed %v when the retry is due, want 1 and 2", got)
	}
}

func (b *bench) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := b.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
