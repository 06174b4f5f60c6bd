package queue_test

import (
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// After pg_upgrade or a restore the planner has no statistics. Neither the backlog nor the view of operators reads a
// published row, whatever the planner expects of parked ones and of retries.
func TestTheBacklogNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `ALTER TABLE app.outbox SET (autovacuum_enabled = off)`)
	b := box{db: pg.Pool(t, pg.URL+"&pool_max_conns=1")}
	b.Queue = queue.New(b.db)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now() FROM generate_series(1, 20000) v`)
	b.exec(t, `UPDATE outbox_relays SET low = pg_current_snapshot()`)
	b.append(t, "pending", 1, 2)
	b.append(t, "parked", 1, 2)
	b.exec(t, `UPDATE outbox SET parked_at = now() WHERE aggregate_id = 'parked' AND version = 1`)
	start := b.read(t)
	got, _, err := b.Backlog(t.Context(), queue.OldestSearch{})
	if err != nil || got.Pending != 4 || got.Parked != 1 {
		t.Errorf("%d events are pending, want 4, and %d parked, want 1: %v", got.Pending, got.Parked, err)
	}
	if n := b.read(t) - start; n > 100 {
		t.Errorf("the backlog of 4 events was read in %d pages", n)
	}
	start = b.read(t)
	if n := b.count(t, `SELECT count(*) FROM outbox_pending`); n != 4 {
		t.Errorf("%d events in the view, want 4", n)
	}
	if n := b.read(t) - start; n > 100 {
		t.Errorf("the view of 4 events was read in %d pages", n)
	}
}
