package catalog

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
)

// The rows that a list or a search reads are in proportion to its results, however many
// tombstones and other videos there are.
func TestPlansOfLists(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	var last pgtest.Statement
	db := last.Of(t, f.pool)
	// The newest are tombstones. The service's own statements end after 15 s, and a busy machine takes longer for so many.
	_, err := f.admin.Exec(t.Context(), `
		SET search_path = catalog;
		INSERT INTO video_projection (video_id, uploader_id, title, version, created_at, updated_at, deleted_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, CASE WHEN n <= 20000 THEN gen_random_uuid() END,
		       CASE WHEN n <= 20000 THEN 'common ' || md5(n::text) ELSE '' END, 1, now(), now(), CASE WHEN n > 20000 THEN now() END
		  FROM generate_series(1, 60000) n;
		RESET search_path`)
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
	trigrams := pgtest.Value[bool](t, db, `SELECT to_regclass('video_projection_by_title') IS NOT NULL`)
	for name, q := range map[string]Query{
		"the first page": {Caller: everyone}, "a search for nothing": {Caller: everyone, Title: "no such title"},
		"a search for a rare text": {Caller: everyone, Title: "c4ca4"}, "a search for a common text": {Caller: everyone, Title: "common"},
		"a search for letters with vowel signs": {Caller: everyone, Title: "नहीं"},
	} {
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

// While a release writes a field that catalog does not know, millions of rows may become incomplete. A later release reads
// them page by page, and no page reads all of them.
func TestAPageOfIncompleteVideosReadsNoMore(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, created_at, updated_at, incomplete, revision)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, gen_random_uuid(), 't', 1, now(), now(), true, -1
		  FROM generate_series(1, 20000) n ORDER BY md5(n::text);
		ANALYZE catalog.video_projection`)
	var last pgtest.Statement
	db := last.Of(t, f.pool)
	found, err := videos{db: db}.Incomplete(t.Context(), "", 100)
	if err != nil || len(found) != 100 || !slices.IsSorted(found) {
		t.Fatalf("%d videos, %v", len(found), err)
	}
	if read := last.Pages(t, db); read > 200 {
		t.Errorf("100 of 20,000 incomplete videos were read in %d pages", read)
	}
}

// Without statistics, as after pg_upgrade, a count of the incomplete videos does not read all videos.
func TestACountOfIncompleteVideosNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	pgtest.Exec(t, f.admin, `ALTER TABLE catalog.video_projection SET (autovacuum_enabled = off)`)
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, created_at, updated_at, incomplete)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, gen_random_uuid(), 't', 1, now(), now(), n = 20000
		  FROM generate_series(1, 20000) n`)
	var last pgtest.Statement
	db := last.Of(t, f.pool)
	if n, err := (videos{db: db}).CountIncomplete(t.Context(), 100); err != nil || n != 1 {
		t.Fatalf("%d incomplete videos, %v", n, err)
	}
	if read := last.Pages(t, db); read > 10 {
		t.Errorf("1 incomplete video of 20,000 was counted in %d pages", read)
	}
}

// After five executions Postgres may keep one plan for all arguments. For a search that would be a read of all
// titles, because the plan would have to do for texts that the trigram index cannot find.
func TestSearchesAreEachPlanned(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	cfg := f.pool.Config().Copy()
	cfg.MaxConns = 1
	db := pgtest.Open(t, cfg)
	for range 20 {
		if _, _, err := listVideos(t.Context(), db, Query{Caller: everyone, Title: "no such title", PageSize: 50}, uuid.Max, nil); err != nil {
			t.Fatal(err)
		}
	}
	var planned, kept int
	if err := db.QueryRow(t.Context(), `SELECT sum(custom_plans), sum(generic_plans) FROM pg_prepared_statements
		WHERE statement LIKE '%ILIKE%' AND statement NOT LIKE '%pg_prepared_statements%'`).Scan(&planned, &kept); err != nil {
		t.Fatal(err)
	}
	if planned != 20 || kept != 0 {
		t.Errorf("%d searches were planned, and %d had a kept plan", planned, kept)
	}
}

// A search returns all that match, in the order of the pages, wherever the matches are and whichever of its two
// reads finds them.
func TestASearchFindsAllThatMatch(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, created_at, updated_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, '00000000-0000-7000-8000-000000000001',
		       CASE n % 300 WHEN 0 THEN 'Rare' ELSE '' END || CASE WHEN n % 7000 < 9 THEN ' 视频' ELSE '' END || CASE WHEN n > 5500 THEN ' new' ELSE ' old' END,
		       1, now(), now()
		  FROM generate_series(1, 6000 + $1::int) n`, searchedFirst)
	for _, text := range []string{"rare", "RARE 视", "视频", "频", "new", "old", "no such title"} {
		for _, uploader := range []string{"", "00000000-0000-7000-8000-000000000001"} {
			var found []uuid.UUID
			rows, _ := f.admin.Query(t.Context(), `SELECT video_id FROM catalog.video_projection
				WHERE title ILIKE '%' || $1 || '%' ORDER BY video_id DESC LIMIT 300`, text)
			want, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			if err != nil {
				t.Fatal(err)
			}
			q := Query{Caller: everyone, Title: text, UploaderID: uploader, PageSize: 29}
			for before := uuid.Max; len(found) < len(want); before = found[len(found)-1] {
				page, _, err := listVideos(t.Context(), f.pool, q, before, nil)
				if err != nil || len(page) == 0 {
					t.Fatalf("%q: %d of %d videos, %v", text, len(found), len(want), err)
				}
				for _, v := range page[:min(len(page), q.PageSize)] {
					found = append(found, v.ID)
				}
			}
			if !slices.Equal(found[:len(want)], want) {
				t.Errorf("%q finds other videos than there are", text)
			}
		}
	}
}

// A search counts no video of another tenant as reached, although its statement can read all tenants' rows.
func TestASearchReachesNoPositionOfAnotherTenant(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	id := uuid.Must(uuid.NewV7())
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_projection (video_id, uploader_id, title, version, created_at, updated_at, tenant_id)
		VALUES ($1, gen_random_uuid(), 'a title', 3, now(), now(), 'acme')`, id)
	wanted := []consistency.Position{{AggregateType: videoType, AggregateID: id.String(), Epoch: 1, Version: 3}}
	for name, want := range map[string]int{"acme": 1, everyone.Tenant: 0} {
		q := Query{Caller: everyone, Title: "title", PageSize: 50}
		q.Caller.Tenant = name
		videos, reached, err := listVideos(t.Context(), f.pool, q, uuid.Max, wanted)
		if err != nil || len(videos) != want || reached != want {
			t.Errorf("tenant %q: %d videos, %d positions, %v; want %d of both", name, len(videos), reached, err, want)
		}
	}
}
