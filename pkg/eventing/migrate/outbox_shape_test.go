package migrate

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/postgres"
)

// beforeShape is the last version before the outbox got its present shape.
const beforeShape = 202

// TestShapeMigrationUnderLoad migrates an outbox while it is written to. A writer waits
// for a lock for a second at most: if that is not enough, its write fails, and the test
// with it. For a while a long transaction blocks the migration.
//
// LOCKSTEP_FULL=1 runs it with 1,000,000 pending and 10,000,000 published rows; `make
// crash` sets it.
func TestShapeMigrationUnderLoad(t *testing.T) {
	t.Parallel()
	pending, published := 10_000, 50_000
	if os.Getenv("LOCKSTEP_FULL") != "" {
		pending, published = 1_000_000, 10_000_000
	}
	ctx := t.Context()
	server, err := postgres.Start(ctx, postgres.Options{Log: os.Stderr, InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	bakery := Schema{Name: "bakery", Role: "bakery_service", Parts: []embed.FS{Outbox}}
	db, err := bakery.Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	p, err := bakery.provider(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(ctx, beforeShape); err != nil {
		t.Fatal(err)
	}
	own := server.URL() + "&search_path=" + bakery.Name
	pool, err := pgxpool.New(ctx, own)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	const rows = `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at, parked_at, next_retry_at)
		SELECT gen_random_uuid(), 'video', $2 || n, 'VideoCreated', 1, '', CASE WHEN $2 = 'published-' THEN now() END,
		       CASE WHEN $2 = 'pending-' AND n <= 10 THEN now() END, CASE WHEN $2 = 'pending-' AND n <= 10 THEN now() END
		  FROM generate_series(1, $1::int) n`
	for prefix, n := range map[string]int{"published-": published, "pending-": pending} {
		if _, err := pool.Exec(ctx, rows, n, prefix); err != nil {
			t.Fatal(err)
		}
	}

	writing, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	var written, longest atomic.Int64
	for w := range 4 {
		writers.Go(func() {
			for n := 0; writing.Err() == nil; n++ {
				start := time.Now()
				if err := write(ctx, pool, fmt.Sprintf("writer-%d-%d", w, n)); err != nil {
					t.Errorf("a write during the migration: %v", err)
					return
				}
				written.Add(1)
				if took := int64(time.Since(start)); took > longest.Load() {
					longest.Store(took)
				}
			}
		})
	}
	// Another transaction has used the table, and ends only when the ALTER waits for
	// it.
	holder, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(ctx, `SET LOCAL lock_timeout = '1s'; SELECT FROM outbox LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	released := make(chan error, 1)
	go func() { released <- releaseWhenWaitedFor(ctx, pool, holder) }()
	start := time.Now()
	err = bakery.Up(ctx, server.URL(), slog.New(slog.DiscardHandler))
	took := time.Since(start)
	stop()
	writers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-released; err != nil {
		t.Error(err)
	}
	var left, relays int
	err = pool.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM outbox_pending),
		       (SELECT count(*) FROM outbox_relays r WHERE seen_at = '-infinity'
		          AND pg_snapshot_xmin(r.low) <= (SELECT xact FROM outbox WHERE published_at IS NULL ORDER BY xact LIMIT 1))`).Scan(&left, &relays)
	if err != nil || left != pending+int(written.Load()) || relays != 1 {
		t.Errorf("%d events are pending, want %d; the first relay begins with them: %t, %v", left, pending+int(written.Load()), relays == 1, err)
	}
	t.Logf("%d pending and %d published rows: migrated in %s; of %d writes meanwhile the longest took %s",
		pending, published, took, written.Load(), time.Duration(longest.Load()))
}

// write appends an event like the release before. It waits for a lock for a second at
// most.
func write(ctx context.Context, pool *pgxpool.Pool, id string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '1s'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
			VALUES (gen_random_uuid(), 'video', $1, 'VideoCreated', 1, '')`, id)
		return err
	})
}

// releaseWhenWaitedFor ends the holder's transaction after the migration has tried in
// vain to lock the table.
func releaseWhenWaitedFor(ctx context.Context, pool *pgxpool.Pool, holder pgx.Tx) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; !waiting; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		err := pool.QueryRow(ctx, `
			SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			                WHERE NOT l.granted AND (l.relation = 'outbox'::regclass AND l.mode = 'AccessExclusiveLock' OR l.virtualxid IS NOT NULL))`).Scan(&waiting)
		if err != nil {
			return err
		}
	}
	return holder.Rollback(ctx)
}
