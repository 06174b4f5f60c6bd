package catalog

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
)

// userRows has a statement for each table, by name. The statement counts a user's rows that are not
// tombstones. The copy of a rebuild is not counted. It has the same rows, because each write of a
// row also writes its copy.
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
