package idempotency

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
)

func TestMain(m *testing.M) { pairtest.Main(m) }

// Instances share the expired keys, and one pass each leaves none, however many there
// are: keys may come faster than any fixed share of a minute.
func TestASweepGoesOnWhileThereIsMore(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	db := pg.Pool(t, pg.VideoURL)
	const expired, live = 200_000, 7
	// The service's own statements end after 15 s, and a busy machine takes longer for so many.
	pgtest.Exec(t, pg.Pool(t, pg.Admin), `
		INSERT INTO video.idempotency_keys (principal, operation, key, request_hash, response, created_at)
		SELECT '', 'op', n::text, ''::bytea, ''::bytea, now() - interval '30 hours' + n * interval '1 millisecond' FROM generate_series(1, $1::int) n
		UNION ALL
		SELECT '', 'op', 'live ' || n, ''::bytea, ''::bytea, now() - interval '23 hours' FROM generate_series(1, $2::int) n`, expired, live)
	if n, err := countExpired(t.Context(), db); err != nil || n != maxWaiting {
		t.Errorf("%d wait (%v), want as many as are counted", n, err)
	}
	var removed, beats atomic.Int64
	var instances sync.WaitGroup
	for range 2 {
		instances.Go(func() {
			n, more, err := sweep(t.Context(), db, time.Hour, func() { beats.Add(1) })
			if err != nil || more {
				t.Errorf("more %t, %v", more, err)
			}
			removed.Add(n)
		})
	}
	instances.Wait()
	// A batch may be short because the other instance has the remaining keys.
	n, _, err := sweep(t.Context(), db, time.Hour, func() {})
	if err != nil || removed.Load()+n != expired || n > 2*sweepBatch {
		t.Errorf("%d removed by two instances, %d by one more pass (%v)", removed.Load(), n, err)
	}
	if beats.Load() < expired/sweepBatch {
		t.Errorf("%d signs of life", beats.Load())
	}
	if n, err := countExpired(t.Context(), db); err != nil || n != 0 {
		t.Errorf("%d wait (%v)", n, err)
	}
	var left int
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM idempotency_keys`).Scan(&left); err != nil || left != live {
		t.Errorf("%d keys are left (%v), want %d", left, err, live)
	}
	if _, more, err := sweep(t.Context(), db, 0, func() {}); err != nil || !more {
		t.Errorf("without a budget: more %t, %v", more, err)
	}
}

// After pg_upgrade or a restore the planner has no statistics. The count of the expired keys reads no live ones.
func TestTheCountOfExpiredKeysNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	pg := pairtest.New(t)
	admin := pg.Pool(t, pg.Admin)
	for _, sql := range []string{
		`ALTER TABLE video.idempotency_keys SET (autovacuum_enabled = off)`,
		`INSERT INTO video.idempotency_keys (principal, operation, key, request_hash, response, created_at)
		 SELECT '', 'op', n::text, '', '', now() - CASE WHEN n > 49990 THEN interval '30 hours' ELSE interval '1 hour' END
		   FROM generate_series(1, 50000) AS n`,
	} {
		pgtest.Exec(t, admin, sql)
	}
	var s pgtest.Statement
	db := s.Of(t, pg.Pool(t, pg.VideoURL))
	if n, err := countExpired(t.Context(), db); err != nil || n != 10 {
		t.Errorf("%d wait (%v), want 10", n, err)
	}
	// maxWaiting has this effect with millions of keys: the planner expects to find so many expired ones soon, wherever it begins.
	s.Args = []any{10}
	if pages := s.Pages(t, pg.Pool(t, pg.VideoURL)); pages > 100 {
		t.Errorf("the count of 10 keys has read %d pages", pages)
	}
}
