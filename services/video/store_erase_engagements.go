package video

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// selectEngaged selects the next ids of a user's engagements behind a given id, including
// tombstones. All ids begin with the user's id. So only the video id in the given id counts.
const selectEngaged = `
	SELECT concat(user_id, ':', video_id) FROM engagements
	 WHERE user_id = $1 AND video_id > right($2::text, 36)::uuid ORDER BY video_id LIMIT $3`

// countEngagements counts a user's engagements that are not deleted.
func countEngagements(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) (n int64, err error) {
	err = db.QueryRow(ctx, `SELECT count(*) FROM engagements WHERE user_id = $1 AND deleted_at IS NULL`, user).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count engagements: %w", err)
	}
	return n, nil
}
