package video

import (
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
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
