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
		var all []string
		for after := uuid.Nil.String(); ; after = all[len(all)-1] {
			ids, err := selectIDs(t.Context(), bounded.Pool{DB: db, Limit: eraseTimeout}, selectUploads, user, after, 100)
			if err != nil {
				t.Fatal(err)
			}
			if pages := last.Pages(t, a.db); pages > c.most {
				t.Errorf("%s: an erasure reads %d pages for %d ids", c.before, pages, len(ids))
			}
			if all = append(all, ids...); len(ids) < 100 {
				break
			}
		}
		if len(all) != 600 || !slices.IsSorted(all) {
			t.Errorf("an erasure finds %d of 600 videos, or in another order", len(all))
		}
	}
}
