package migrations_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/pgtest/pairtest"
	"example.com/lockstep/migrations"
)

// TestCountersOfRowsFromBefore: the migration counts the engagements that are there, and
// counts none twice when it runs again, after a run that did not end.
func TestCountersOfRowsFromBefore(t *testing.T) {
	t.Parallel()
	db := pairtest.New(t)
	admin := db.Pool(t, db.Admin)
	source, err := os.ReadFile("catalog/01002_counters.sql")
	if err != nil {
		t.Fatal(err)
	}
	_, down, _ := strings.Cut(string(source), "-- +goose Down\n")
	const fill = `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, bookmarked, watched_seconds, version, updated_at, deleted_at)
		SELECT gen_random_uuid(), lpad(to_hex(n % 7), 32, '0')::uuid, n % 2 = 0, n % 3 = 0, n, 1, now(), CASE WHEN n % 5 = 0 THEN now() END
		  FROM generate_series(1, 1000) AS n`
	pgtest.Exec(t, admin, down+fill)
	for _, step := range []string{"first", "once more"} {
		_, err := admin.Exec(t.Context(), `DELETE FROM catalog.goose_db_version WHERE version_id = 1002`)
		if err != nil {
			t.Fatal(err)
		}
		if err := migrations.Up(t.Context(), db.Admin, migrations.Catalog, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		var wrong []string
		rows, _ := admin.Query(t.Context(), `
			SELECT concat_ws(' ', video_id, r.likes, c.likes, r.bookmarks, c.bookmarks, r.seconds, c.seconds)
			  FROM (SELECT video_id, sum(liked::int) AS likes, sum(bookmarked::int) AS bookmarks, sum(watched_seconds) AS seconds
			          FROM catalog.video_user_engagements_projection WHERE deleted_at IS NULL GROUP BY 1) AS r
			  FULL JOIN (SELECT video_id, sum(likes) AS likes, sum(bookmarks) AS bookmarks, sum(watched_seconds) AS seconds
			          FROM catalog.video_counters GROUP BY 1) AS c USING (video_id)
			 WHERE (r.likes, r.bookmarks, r.seconds) IS DISTINCT FROM (c.likes, c.bookmarks, c.seconds)`)
		if wrong, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(wrong) > 0 {
			t.Errorf("%s: %v; rows and counters: %v", step, err, wrong)
		}
		if _, err := admin.Exec(t.Context(), fill); err != nil { // of the older release
			t.Fatal(err)
		}
	}
}
