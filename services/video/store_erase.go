package video

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/bounded"
)

// eraseBatch bounds the rows of one statement of an erasure, so that the statement holds its locks
// for milliseconds only.
const eraseBatch = 500

// eraseTimeout is the time limit of a statement that selects or counts. The database cancels such a
// statement after 15 seconds. The longer eraseTimeout is for a database that does not answer.
const eraseTimeout = 30 * time.Second

// selectUploads selects the next ids of a user's videos behind a video, in the order of their tenants and ids. It selects no
// tombstones, which have an index of their own. The video that it begins behind may be a tombstone by now.
const selectUploads = `
	SELECT video_id::text FROM videos
	 WHERE uploader_id = $1 AND deleted_at IS NULL
	   AND (tenant_id, video_id) > (coalesce((SELECT tenant_id FROM videos WHERE video_id = $2::text::uuid), ''), $2::text::uuid)
	 ORDER BY tenant_id, videos.video_id LIMIT $3`

// selectDeletedUploads selects the next ids of the tombstones of a user's videos behind a given id.
const selectDeletedUploads = `
	SELECT video_id::text FROM videos
	 WHERE uploader_id = $1 AND deleted_at IS NOT NULL AND video_id > $2::text::uuid ORDER BY videos.video_id LIMIT $3`

// selectTenants returns the tenants in which a user has something that is not deleted.
func selectTenants(ctx context.Context, db bounded.Pool, user uuid.UUID) ([]string, error) {
	return bounded.Collect(ctx, db.Statement("read tenants", `
		SELECT tenant_id FROM engagements WHERE user_id = $1 AND deleted_at IS NULL UNION
		SELECT tenant_id FROM videos WHERE uploader_id = $1 AND deleted_at IS NULL ORDER BY 1`, user), pgx.RowTo[string])
}

// selectOwned returns the videos among ids that the user has uploaded, including tombstones.
func selectOwned(ctx context.Context, db bounded.Pool, user uuid.UUID, ids []string) ([]string, error) {
	return selectIDs(ctx, db, `SELECT video_id::text FROM videos WHERE uploader_id = $1 AND video_id = ANY ($2::uuid[])`, user, ids)
}

func selectIDs(ctx context.Context, db bounded.Pool, query string, args ...any) ([]string, error) {
	return bounded.Collect(ctx, db.Statement("read ids", query, args...), pgx.RowTo[string])
}

// countVideos counts a user's videos that are not deleted. Tombstones do not count, because the
// only data of the user in a tombstone is the user's id.
func countVideos(ctx context.Context, db bounded.Pool, user uuid.UUID) (videos int64, err error) {
	err = db.Statement("count videos", `SELECT count(*) FROM videos WHERE uploader_id = $1 AND deleted_at IS NULL`, user).Scan(ctx, &videos)
	return videos, err
}
