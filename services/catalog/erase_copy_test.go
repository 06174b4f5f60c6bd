package catalog

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/rebuild"
)

// The copy of a rebuild has more of a user's rows than one statement deletes. Without the triggers of the rebuild
// no row of the copy is deleted, and the command ends all the same.
func TestErasureInALargeCopy(t *testing.T) {
	t.Parallel()
	const rows = 2*copyBatch + 100
	f, user, table := setUp(t), uuid.New(), userTables[0]
	db := bounded.Pool{DB: f.pool, Limit: time.Minute}
	if err := table.deleteCopies(t.Context(), db, user); err != nil {
		t.Errorf("without a rebuild: %v", err)
	}
	for _, sql := range []string{
		`CREATE TABLE catalog.` + rebuild.Shadow(videoTable) + ` (LIKE catalog.video_projection INCLUDING ALL)`,
		`GRANT SELECT, INSERT, UPDATE ON catalog.` + rebuild.Shadow(videoTable) + ` TO ` + f.pool.Config().ConnConfig.User,
		`INSERT INTO catalog.video_projection_shadow (video_id, uploader_id, title, description, duration_seconds, version, updated_at)
			SELECT gen_random_uuid(), '` + user.String() + `', 'text', '', 1, 1, now() FROM generate_series(1, ` + strconv.Itoa(rows) + `)`,
		`INSERT INTO catalog.video_projection (video_id, title, description, duration_seconds, version, updated_at, deleted_at)
			SELECT video_id, '', '', 0, 2, now(), now() FROM catalog.video_projection_shadow`,
	} {
		pgtest.Exec(t, f.admin, sql)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := table.deleteCopies(ctx, db, user); err != nil {
		t.Errorf("without the triggers: %v", err)
	}
	if n, err := table.countCopy(t.Context(), db, user); err != nil || n != rows {
		t.Errorf("without the triggers %d rows are left, want %d: %v", n, rows, err)
	}
	_, err := f.admin.Exec(t.Context(), `
		CREATE FUNCTION catalog.mirror() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  UPDATE catalog.video_projection_shadow SET uploader_id = NEW.uploader_id, title = NEW.title, deleted_at = NEW.deleted_at, version = NEW.version
		   WHERE video_id = NEW.video_id;
		  RETURN NULL;
		END $$;
		CREATE TRIGGER mirror AFTER UPDATE ON catalog.video_projection FOR EACH ROW EXECUTE FUNCTION catalog.mirror()`)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.deleteCopies(t.Context(), db, user); err != nil {
		t.Error(err)
	}
	if n, err := table.countCopy(t.Context(), db, user); err != nil || n != 0 {
		t.Errorf("%d rows are left: %v", n, err)
	}
}
