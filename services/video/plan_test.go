package video

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/services/video/aggregate"
)

// A page reads only its own rows, however many tombstones are newer.
func TestAListPassesNoTombstones(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`
		INSERT INTO video.videos (video_id, uploader_id, title, version, created_at, updated_at, deleted_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, gen_random_uuid(), 't', 1, now(), now(),
		       CASE WHEN n > 1000 THEN now() END
		  FROM generate_series(1, 60000) n`)
	var last pgtest.Statement
	db := last.Of(t, a.db)
	videos, err := selectPage(t.Context(), db, aggregate.Scope(everyone), Filter{}, uuid.Max, 51)
	if err != nil || len(videos) != 51 {
		t.Fatalf("%d videos, %v", len(videos), err)
	}
	if pages := last.Pages(t, a.db); pages > 60 {
		t.Errorf("the first page reads %d pages", pages)
	}
}

// The list of an uploader reads no tombstones, and an erasure reads the user's videos only.
func TestVideosOfAnUploaderAreReadByTheirIndexes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`
		INSERT INTO video.videos (video_id, uploader_id, title, version, created_at, updated_at, deleted_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid,
		       CASE WHEN n % 50 = 0 THEN '00000000-0000-7000-8000-000000000001'::uuid ELSE gen_random_uuid() END, 't', 1, now(), now(),
		       CASE WHEN n % 50 = 0 AND n < 29000 THEN now() END
		  FROM generate_series(1, 30000) n`)
	user := uuid.MustParse("00000000-0000-7000-8000-000000000001")
	var last pgtest.Statement
	db := last.Of(t, a.db)
	for _, c := range []struct {
		before string
		most   int // pages
	}{
		{`ANALYZE video.videos`, 600}, // Postgres has to look at each row
		{`VACUUM ANALYZE video.videos`, 40},
	} {
		a.exec(c.before)
		f := Filter{UploaderID: uuid.NullUUID{UUID: user, Valid: true}}
		videos, err := selectPage(t.Context(), db, aggregate.Scope(everyone), f, uuid.Max, 51)
		if err != nil || len(videos) != 21 {
			t.Fatalf("%d videos, %v", len(videos), err)
		}
		if pages := last.Pages(t, a.db); pages > 40 {
			t.Errorf("%s: a list of 21 videos reads %d pages", c.before, pages)
		}
		deleted := pagesOf(t, a, &last, selectDeletedUploads, user, c.most)
		if kept := pagesOf(t, a, &last, selectUploads, user, c.most); len(deleted) != 579 || len(kept) != 21 {
			t.Errorf("%s: an erasure finds %d of 579 tombstones, and %d of 21 videos", c.before, len(deleted), len(kept))
		}
	}
}

// An erasure of a user with many videos, in several tenants, reads each of them once.
func TestAnErasureReadsEachVideoOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`
		ALTER TABLE video.videos SET (autovacuum_enabled = off);
		INSERT INTO video.videos (video_id, uploader_id, tenant_id, title, version, created_at, updated_at)
		SELECT (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid,
		       CASE WHEN n % 5 = 0 THEN '00000000-0000-7000-8000-000000000001'::uuid ELSE gen_random_uuid() END, 'tenant' || n % 3, 't', 1, now(), now()
		  FROM generate_series(1, 30000) n`)
	user := uuid.MustParse("00000000-0000-7000-8000-000000000001")
	var last pgtest.Statement
	for _, before := range []string{`SELECT`, `ANALYZE video.videos`} { // without statistics, and with them
		a.exec(before)
		videos := pagesOf(t, a, &last, selectUploads, user, 150)
		slices.Sort(videos)
		if n := len(slices.Compact(videos)); len(videos) != 6000 || n != 6000 {
			t.Errorf("%s: %d videos, of which %d differ, want 6000", before, len(videos), n)
		}
	}
}

// pagesOf returns the ids that an erasure reads by query, in pages of 100 ids. It fails if it reads more database pages than most for one
// of them.
func pagesOf(t *testing.T, a *api, last *pgtest.Statement, query string, user uuid.UUID, most int) (all []string) {
	t.Helper()
	db := bounded.Pool{DB: last.Of(t, a.db), Limit: eraseTimeout}
	for after := uuid.Nil.String(); ; after = all[len(all)-1] {
		ids, err := selectIDs(t.Context(), db, query, user, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		if pages := last.Pages(t, a.db); pages > most {
			t.Fatalf("an erasure reads %d pages for %d ids", pages, len(ids))
		}
		if all = append(all, ids...); len(ids) < 100 {
			return all
		}
	}
}
