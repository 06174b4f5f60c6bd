package catalog

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/pkg/eventing/inbox"
)

// The session keeps the plans of a batch's statements, which were made for an empty table. The
// test counts the pages that they read when the table has filled up.
func TestPlansOfBatchesOutliveTheTable(t *testing.T) {
	t.Parallel()
	batchesReadFewPages(t, videoStore, `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, epoch, created_at, updated_at, tenant_id)
		SELECT `+manyIDs+`, gen_random_uuid(), '', `+manyRows)
}

// manyIDs and manyRows are the ids and the last columns of a table that has filled up.
const (
	manyIDs  = `(lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000001')::uuid`
	manyRows = `1, 1, now(), now(), 'default' FROM generate_series(1, 20000) n`
)

func batchesReadFewPages[S any](t *testing.T, s store[S], fill string) {
	pg := pairtest.New(t)
	s.pool, s.admin = pg.Pool(t, pg.CatalogURL+"&pool_max_conns=1"), pg.Pool(t, pg.Admin)
	// To read all of the table costs least, statistics say.
	pgtest.Exec(t, s.admin, `VACUUM (ANALYZE) catalog.`+s.table)
	version := int64(0)
	batch := func() {
		t.Helper()
		version++
		if err := s.apply(t.Context(), s.step(1, version, version), s.step(2, version, version)); err != nil {
			t.Fatal(err)
		}
	}
	batch()
	batch()
	pgtest.Exec(t, s.admin, fill)
	before := pagesOf(t, s.pool, s.table)
	const times = 20
	for range times {
		batch()
	}
	if n := (pagesOf(t, s.pool, s.table) - before) / times; n > 100 {
		t.Errorf("a batch of two rows reads %d pages, want a few", n)
	}
}

// apply locks and writes rows as a batch does.
func (s store[S]) apply(ctx context.Context, steps ...inbox.Step[S]) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		ids := make([]string, len(steps))
		for i, step := range steps {
			ids[i] = step.ID
		}
		found, err := s.Lock(ctx, tx, ids)
		if err != nil {
			return err
		}
		for i := range steps {
			steps[i].Old = found[steps[i].ID]
		}
		written, err := s.Upsert(ctx, tx, steps)
		if err == nil && len(written) != len(steps) {
			err = fmt.Errorf("%d of %d rows are written", len(written), len(steps))
		}
		return err
	})
}

// pagesOf counts the pages of a table and its indexes that have been read.
func pagesOf(t *testing.T, db *pgxpool.Pool, table string) (n int) {
	t.Helper()
	pgtest.Exec(t, db, `SELECT pg_stat_force_next_flush()`)
	err := db.QueryRow(t.Context(), `
		SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0)
		  FROM pg_statio_user_tables WHERE relname = $1`, table).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
