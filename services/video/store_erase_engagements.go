package video

import (
	"context"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/bounded"
)

// selectEngaged selects the next ids of a user's engagements behind a given id, including
// tombstones. All ids begin with the user's id. So only the video id in the given id counts.
const selectEngaged = `
	SELECT concat(user_id, ':', video_id) FROM engagements
	 WHERE user_id = $1 AND video_id > right($2::text, 36)::uuid ORDER BY video_id LIMIT $3`

// countEngagements counts a user's engagements that are not deleted.
func countEngagements(ctx context.Context, db bounded.Pool, user uuid.UUID) (n int64, err error) {
	err = db.Statement("count engagements", `SELECT count(*) FROM engagements WHERE user_id = $1 AND deleted_at IS NULL`, user).Scan(ctx, &n)
	return n, err
}
