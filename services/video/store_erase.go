package video

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// eraseBatch bounds the rows of one statement of an erasure, so that the statement holds its locks
// for milliseconds only.
const eraseBatch = 500

// selectUploads selects the next ids of a user's videos behind a given id, including tombstones.
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

// selectOwned returns the videos among ids that the user has uploaded, including tombstones.
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

// countVideos counts a user's videos that are not deleted. Tombstones do not count, because the
// only data of the user in a tombstone is the user's id.
func countVideos(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) (videos int64, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM videos WHERE uploader_id = $1 AND deleted_at IS NULL`, user).Scan(&videos)
	if err != nil {
		return 0, fmt.Errorf("count videos: %w", err)
	}
	return videos, nil
}
