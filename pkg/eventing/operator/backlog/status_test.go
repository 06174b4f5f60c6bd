package backlog

import (
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
)

// After pg_upgrade or a restore the planner has no statistics. The state of an outbox reads none of the published rows.
func TestStatusNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `ALTER TABLE app.outbox SET (autovacuum_enabled = off)`)
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

// More events are parked than a statement can count within its time. The state and the list read a bounded part of them.
func TestManyParkedEventsAreNotAllRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1")
	b.backlog = New(b.db)
	b.backlog.counted, b.backlog.ranked = 1000, 200
	const parked = 20_000
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, last_error)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now() + v * interval '1 microsecond', 'refused'
		  FROM generate_series(1, $1::int) v`, parked)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', '7', 'VideoUpdated', v, '' FROM generate_series(2, 4) v`)
	start := b.pages(t)
	s, err := b.backlog.Status(t.Context())
	if err != nil || s.Pending != 1000 || !s.More || s.Parked != parked || len(s.ByAggregate) != maxGroups ||
		s.ByAggregate[0].AggregateID != "7" || s.ByAggregate[0].Blocked != 3 || s.ByReason[0].Parked != parked {
		t.Errorf("%+v, %v", s, err)
	}
	if n := b.pages(t) - start; n > parked {
		t.Errorf("the state was read in %d pages", n)
	}
	for _, f := range []Filter{{}, {Parked: true}, {Reason: "refused"}} {
		start := b.pages(t)
		if events, err := b.backlog.List(t.Context(), f, 10); err != nil || len(events) != 10 {
			t.Errorf("%+v: %d events, %v", f, len(events), err)
		}
		if n := b.pages(t) - start; n > 4000 {
			t.Errorf("%+v: 10 of 1000 events were read in %d pages", f, n)
		}
	}
}

// Thousands of events may wait behind each parked one. The state reads a bounded part of them.
func TestManyEventsBehindParkedOnesAreNotAllRead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.URL+"&pool_max_conns=1")
	b.backlog = New(b.db)
	b.backlog.counted = 10
	const parked, behind = 5, 4000
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, parked_at, last_error)
		SELECT gen_random_uuid(), 'video', v::text, 'VideoUpdated', 1, '', now(), 'refused' FROM generate_series(1, $1::int) v`, parked)
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', a::text, 'VideoUpdated', v, ''
		  FROM generate_series(1, $1::int) a, generate_series(2, $2::int + 1) v`, parked, behind)
	start := b.pages(t)
	s, err := b.backlog.Status(t.Context())
	if err != nil || len(s.ByAggregate) != parked || s.ByAggregate[0].Blocked != MaxBlocked {
		t.Errorf("%+v, %v", s, err)
	}
	if n := b.pages(t) - start; n > parked*2*MaxBlocked {
		t.Errorf("the state was read in %d pages", n)
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
