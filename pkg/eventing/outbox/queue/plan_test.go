package queue_test

import (
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The plans are made for a table that is empty or nearly so. The test counts the pages that
// they read when the table has filled up.
func TestAPlanOutlivesTheTable(t *testing.T) {
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
	db := pg.Pool(t, pg.VideoURL+"&pool_max_conns=1")
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
	if _, err := pg.Pool(t, pg.Admin).Exec(t.Context(), `VACUUM (ANALYZE) video.outbox`); err != nil {
		t.Fatal(err)
	}
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
