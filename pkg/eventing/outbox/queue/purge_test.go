package queue_test

import (
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
)

func TestPurgeDeletesOldPublishedRows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "old", 1, 2)
	b.append(t, "young", 1, 1)
	b.append(t, "pending", 1, 1)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '2 hours' WHERE aggregate_id = 'old'`)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE aggregate_id = 'young'`)
	b.exec(t, `UPDATE outbox SET occurred_at = now() - interval '2 hours' WHERE aggregate_id = 'pending'`)
	n, more, err := b.Purge(t.Context(), time.Hour, 0)
	if n != 1 || more || err != nil {
		t.Errorf("purge: %d, %v, %v; want 1 row and no more pages", n, more, err)
	}
	if left := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id IN ('young', 'pending')`); left != 2 {
		t.Errorf("%d rows are left, want 2", left)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE aggregate_id = 'old' AND version = 2 AND payload = ''`); n != 1 {
		t.Error("the newest event of an aggregate is gone, or has kept its payload")
	}
	const (
		written = `SELECT xmin::text::bigint FROM outbox WHERE aggregate_id = 'old'`
		locked  = `SELECT xmax::text::bigint FROM outbox WHERE aggregate_id = 'old'`
	)
	before, lockedBefore := b.count(t, written), b.count(t, locked)
	if _, _, err := b.Purge(t.Context(), time.Hour, 0); err != nil || b.count(t, written) != before {
		t.Errorf("an event without a payload is emptied again in each pass, %v", err)
	}
	// A row's lock is in its page, so each pass would write all pages of the table.
	if b.count(t, locked) != lockedBefore {
		t.Error("a pass with nothing to purge locks rows")
	}
}

// The event behind is not published, and an operator may remove it at any time. So the event before it stays, without its payload.
func TestPurgeKeepsTheNewestPublishedEvent(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "a", 1, 4)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '2 hours' WHERE version <= 2`)
	if n, _, err := b.Purge(t.Context(), time.Hour, 0); n != 1 || err != nil {
		t.Errorf("%d rows are deleted, %v; want that of version 1", n, err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE version > 2 OR version = 2 AND payload = ''`); n != 3 {
		t.Errorf("%d rows are left as they should be, want 3", n)
	}
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version = 3`)
	if n, _, err := b.Purge(t.Context(), time.Hour, 0); n != 1 || err != nil {
		t.Errorf("%d rows are deleted behind the next event, %v; want that of version 2", n, err)
	}
}

// A locked row waits for the next pass, and no other row with it.
func TestPurgeGoesAroundLockedRows(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.append(t, "old", 1, 3)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '2 hours'`)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.Exec(t, tx, `SELECT FROM outbox WHERE version = 1 FOR UPDATE`)
	if n, _, err := b.Purge(t.Context(), time.Hour, 0); n != 1 || err != nil {
		t.Errorf("with a locked row %d rows are deleted, %v; want 1", n, err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE version IN (1, 3)`); n != 2 {
		t.Errorf("%d rows are left of the locked one and the newest", n)
	}
}
