package catalog

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// userRows count a user's rows that are no tombstones, by their names. A copy that a rebuild keeps
// has the same ones: each write of a row writes its copy.
var userRows = []userCount{
	{"videos", `SELECT count(*) FROM video_projection WHERE uploader_id = $1 AND deleted_at IS NULL`},
	{"engagements", `SELECT count(*) FROM video_user_engagements_projection WHERE user_id = $1 AND deleted_at IS NULL`},
}

type userCount struct{ name, sql string }

func (c userCount) of(ctx context.Context, db *pgxpool.Pool, user uuid.UUID) (rows int64, err error) {
	if err = db.QueryRow(ctx, c.sql, user).Scan(&rows); err != nil {
		return 0, fmt.Errorf("count %s: %w", c.name, err)
	}
	return rows, nil
}
