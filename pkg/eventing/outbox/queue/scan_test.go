package queue_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The events of one transaction, which are more than a page, are gone through as well.
func TestScanGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a0", 1, 1)
	var together []eventing.Event
	for i := range 5 {
		together = append(together, event(fmt.Sprint("b", i), 1))
	}
	if err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return outbox.Append(t.Context(), tx, nil, together...) }); err != nil {
		t.Fatal(err)
	}
	seen := claims{}
	at := queue.Beginning.Since()[0]
	for page := 1; ; page++ {
		p, err := b.Scan(t.Context(), as("t"), at, 2)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(seen, versions(p.Batches))
		if p.Done {
			if page != 4 {
				t.Errorf("%d pages of 2 for 6 events", page)
			}
			break
		}
		at = p.Next
	}
	want(t, "all pages", claims{"a0": {1}, "b0": {1}, "b1": {1}, "b2": {1}, "b3": {1}, "b4": {1}}, seen)
}

// The rows that a snapshot did not see are those of the transactions that were open in it,
// and of those that began later.
func TestScanSince(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "old", 1, 1)
	slow := pgtest.Begin(t, b.db)
	if err := outbox.Append(t.Context(), slow, nil, event("slow", 1)); err != nil {
		t.Fatal(err)
	}
	b.append(t, "quick", 1, 1)
	since := b.snapshot(t)
	pgtest.End(t, slow.Commit)
	b.append(t, "new", 1, 1)
	seen := claims{}
	for _, part := range since.Since() {
		p, err := b.Scan(t.Context(), as("t"), part, 10)
		if err != nil || !p.Done {
			t.Fatal(err)
		}
		maps.Copy(seen, versions(p.Batches))
	}
	want(t, "since the snapshot", claims{"slow": {1}, "new": {1}}, seen)
}
