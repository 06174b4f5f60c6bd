package catalog

import (
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
)

// The rows that a list or a search reads are in proportion to its results, however many
// tombstones and other videos there are.
func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var last pgtest.Statement
	db := last.Of(t, f.pool)
	// The newest are tombstones.
	_, err := db.Exec(t.Context(), `
		INSERT INTO video_projection (video_id, uploader_id, title, version, created_at, updated_at, deleted_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, CASE WHEN n <= 20000 THEN gen_random_uuid() END,
		       CASE WHEN n <= 20000 THEN md5(n::text) ELSE '' END, 1, now(), now(), CASE WHEN n > 20000 THEN now() END
		  FROM generate_series(1, 60000) n`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.admin.Exec(t.Context(), `
		INSERT INTO catalog.video_counters SELECT video_id, operation, 1, 1, 1
		  FROM catalog.video_projection, (VALUES ('INSERT'), ('UPDATE')) AS v (operation) WHERE deleted_at IS NULL;
		ANALYZE catalog.video_projection; ANALYZE catalog.video_counters`)
	if err != nil {
		t.Fatal(err)
	}
	var trigrams bool
	if err := db.QueryRow(t.Context(), `SELECT to_regclass('video_projection_by_title') IS NOT NULL`).Scan(&trigrams); err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]Query{"the first page": {Caller: everyone}, "a search for nothing": {Caller: everyone, Title: "no such title"}} {
		q.PageSize = 50
		before := uuid.Max
		if _, _, err := listVideos(t.Context(), db, q, before, nil); err != nil {
			t.Fatal(err)
		}
		read := last.Pages(t, db)
		t.Logf("%s: %d pages", name, read)
		if q.Title != "" && !trigrams {
			continue // reads all that is not deleted
		}
		// Besides the page, the counters of each video: three pages of their index, and two rows.
		if read > 100+5*51 {
			t.Errorf("%s reads %d pages:\n%s", name, read, last.SQL)
		}
	}
}
