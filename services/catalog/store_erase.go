package catalog

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// countUserRows counts a user's rows that are no tombstones. A copy that a rebuild keeps has
// the same ones: each write of a row writes its copy.
func countUserRows(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) (videos, engagements int64, err error) {
	err = db.QueryRow(ctx, `
		SELECT (SELECT count(*) FROM video_projection WHERE uploader_id = $1 AND deleted_at IS NULL),
		       (SELECT count(*) FROM video_user_engagements_projection WHERE user_id = $1 AND deleted_at IS NULL)`, user).
		Scan(&videos, &engagements)
	if err != nil {
		return 0, 0, fmt.Errorf("count rows: %w", err)
	}
	return videos, engagements, nil
}
