package queue_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The plans are made for a table that is empty or nearly so. The test counts the pages that
// they read when the table has filled up.
func TestPlansSurviveTableGrowth(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string]int{"empty": 0, "one row": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planOutlivesTheTable(t, rows)
		})
	}
}

func planOutlivesTheTable(t *testing.T, rows int) {
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL+"&pool_max_conns=1")
	b := box{queue.New(db), db}
	version := int64(0)
	work := func() {
		t.Helper()
		version++
		since := b.snapshot(t)
		b.append(t, "busy", version, version)
		c, err := b.ClaimNew(t.Context(), as("t"), since, []queue.AggregateVersion{{AggregateType: "video", AggregateID: "parked", Version: 1}})
		if err != nil || len(c.Batches) != 1 {
			t.Fatalf("claimed %d batches: %v", len(c.Batches), err)
		}
		if _, _, err := b.Renew(t.Context(), "t", ids(c.Batches)); err != nil {
			t.Fatal(err)
		}
		settle(t, b, "t", queue.Settlement{Batch: c.Batches[0], Published: 1})
	}
	const insert = `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at, parked_at)
		SELECT gen_random_uuid(), 'video', $1, 'VideoUpdated', v, '', $2::timestamptz, CASE WHEN v = 1 THEN $3::timestamptz END
		  FROM generate_series(1, 20000) v`
	for range rows {
		work()
	}
	// To read all of the table costs least, statistics now say.
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `VACUUM (ANALYZE) app.outbox`)
	work() // makes the plans that are kept
	b.exec(t, insert, "published", "2026-01-01", nil)
	b.exec(t, insert, "parked", nil, "2026-01-01")
	before := b.read(t)
	const times = 20
	for range times {
		work()
	}
	if n := (b.read(t) - before) / times; n > 100 {
		t.Errorf("an event, its claim, a renewal and a settling read %d pages, want a few", n)
	}
}

// TestTheBacklogReadsNoPublishedRow has statistics say that next to nothing is pending, as
// in every outbox that is in use. A third of the table could be behind the relays' low, as
// far as the planner knows: it may take that for a reason to read all of it. And a
// transaction is open that began before all of it, and appends an event in the end.
func TestTheBacklogReadsNoPublishedRow(t *testing.T) {
	t.Parallel()
	for name, each := range map[string]int{"many aggregates": 10, "one aggregate": 20_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.New(t)
			db := pg.Pool(t, pg.URL+"&pool_max_conns=1")
			b := box{queue.New(db), db}
			open := pgtest.Begin(t, pg.Pool(t, pg.URL))
			pgtest.Exec(t, open, `SELECT pg_current_xact_id()`)
			b.exec(t, `
				INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
				SELECT gen_random_uuid(), 'video', (v / $1)::text, 'VideoUpdated', v % $1 + 1, '', '2026-01-01' FROM generate_series(0, 19999) v`, each)
			pgtest.Exec(t, pg.Pool(t, pg.Admin), `VACUUM (ANALYZE) app.outbox`)
			b.exec(t, `UPDATE outbox_relays SET low = pg_current_snapshot()`)
			b.append(t, "pending", 1, 2)
			if err := errors.Join(outbox.Append(t.Context(), open, nil, event("late", 1)), open.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
			start := b.read(t)
			got, _, err := b.Backlog(t.Context(), queue.OldestSearch{})
			if err != nil || got.Pending != 3 {
				t.Fatalf("%d events are pending, want 3: %v", got.Pending, err)
			}
			if n := b.read(t) - start; n > 100 {
				t.Errorf("the backlog of 3 events was read in %d pages, want a few", n)
			}
			if each > 10 {
				return
			}
			// Operators read the view without the relays' settings.
			start = b.read(t)
			if n := b.count(t, `SELECT count(*) FROM outbox_pending`); n != 3 {
				t.Errorf("%d events in the view, want 3", n)
			}
			if n := b.read(t) - start; n > 100 {
				t.Errorf("the view of 3 events was read in %d pages, want a few", n)
			}
		})
	}
}

func ids(batches []queue.Batch) (heads []uuid.UUID) {
	for _, r := range batches {
		heads = append(heads, r.Head())
	}
	return heads
}

// read is how many pages of the outbox and its indexes this session has read. Pages count
// index entries that do not match; numbers of rows do not.
func (b box) read(t *testing.T) int {
	t.Helper()
	b.exec(t, `SELECT pg_stat_force_next_flush()`)
	return b.count(t, `
		SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
		  FROM pg_statio_user_tables WHERE relname = 'outbox'`)
}
