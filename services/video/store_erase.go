package video

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/services/video/aggregate"
)

// eraseBatch bounds the rows of one statement of an erasure: its locks last milliseconds.
const eraseBatch = 500

// selectUploads are the ids of a user's videos, tombstones too: the next ones after an id.
const selectUploads = `SELECT video_id::text FROM videos WHERE uploader_id = $1 AND video_id > $2::text::uuid ORDER BY video_id LIMIT $3`

// selectTenants returns the tenants in which a user has something that is not deleted.
func selectTenants(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) ([]string, error) {
	rows, _ := db.Query(ctx, `
		SELECT tenant_id FROM engagements WHERE user_id = $1 AND deleted_at IS NULL UNION
		SELECT tenant_id FROM videos WHERE uploader_id = $1 AND deleted_at IS NULL ORDER BY 1`, user)
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read tenants: %w", err)
	}
	return tenants, nil
}

// selectOwned returns those of the videos that the user has uploaded, tombstones too.
func selectOwned(ctx context.Context, db *pgxpool.Pool, user uuid.UUID, ids []string) ([]string, error) {
	return selectIDs(ctx, db, `SELECT video_id::text FROM videos WHERE uploader_id = $1 AND video_id = ANY ($2::uuid[])`, user, ids)
}

func selectIDs(ctx context.Context, db *pgxpool.Pool, query string, args ...any) ([]string, error) {
	rows, _ := db.Query(ctx, query, args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	return ids, nil
}

// Tombstones from before tombstones were empty have content. The columns without content are
// those of the zero Video.
var (
	contentColumns = strings.Join(names(fields), ", ")
	noContent      = aggregate.Placeholders(contentColumns)
	hasContent     = `deleted_at IS NOT NULL AND (` + contentColumns + `) IS DISTINCT FROM (` + noContent + `)`
)

// empty are the arguments of hasContent, and one more.
func empty(name string, value any) pgx.NamedArgs {
	args := pgx.NamedArgs(Video{}.values(names(fields)))
	args[name] = value
	return args
}

// countVideos counts a user's videos that are not empty: those that are not deleted, and tombstones.
func countVideos(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) (videos, tombstones int64, err error) {
	err = db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM videos WHERE uploader_id = @user AND deleted_at IS NULL),
		       (SELECT count(*) FROM videos WHERE uploader_id = @user AND `+hasContent+`)`, empty("user", user)).
		Scan(&videos, &tombstones)
	if err != nil {
		return 0, 0, fmt.Errorf("count videos: %w", err)
	}
	return videos, tombstones, nil
}

// emptyTombstones removes the content of tombstones. That makes no version: replicas keep
// none of a tombstone's content, and their digests have none.
func emptyTombstones(ctx context.Context, db *pgxpool.Pool, ids []string) error {
	_, err := db.Exec(ctx, `UPDATE videos SET (`+contentColumns+`) = (`+noContent+`)
		 WHERE video_id = ANY (@ids::uuid[]) AND `+hasContent, empty("ids", ids))
	if err != nil {
		return fmt.Errorf("empty tombstones: %w", err)
	}
	return nil
}
