package backlog

import (
	"testing"

	"github.com/google/uuid"
)

// After pg_upgrade or a restore the planner has no statistics. The state of an outbox reads none of the published rows.
func TestStatusNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(), `ALTER TABLE app.outbox SET (autovacuum_enabled = off)`); err != nil {
		t.Fatal(err)
	}
	b.db = b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1") // the pages are counted by this session
	b.backlog = New(b.db)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now() FROM generate_series(1, 20000) v`)
	b.exec(t, `UPDATE outbox_relays SET low = pg_current_snapshot()`)
	ids := b.append(t, uuid.NewString(), 3)
	b.park(t, ids[0], "a reason")
	start := b.pages(t)
	s, err := b.backlog.Status(t.Context())
	if err != nil || s.Pending != 3 || s.Parked != 1 || s.Blocked != 2 || len(s.ByReason) != 1 || len(s.ByAggregate) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if n := b.pages(t) - start; n > 200 {
		t.Errorf("the state of 3 events was read in %d pages", n)
	}
}

// pages is how many pages of the outbox and its indexes this session has accessed.
func (b *bench) pages(t *testing.T) int {
	t.Helper()
	b.exec(t, `SELECT pg_stat_force_next_flush()`)
	return b.count(t, `
		SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
		  FROM pg_statio_user_tables WHERE relname = 'outbox'`)
}
