package catalog

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Incomplete reads the partial index of incomplete rows.
func (a videos) Incomplete(ctx context.Context, after string, limit int) ([]string, error) {
	return readIDs(ctx, a.db, a.sql().incomplete,
		videoRevision, cmp.Or(after, uuid.Nil.String()), limit)
}

// CountIncomplete counts the incomplete rows, up to limit, in the partial index.
func (a videos) CountIncomplete(ctx context.Context, limit int) (n int64, err error) {
	err = a.db.QueryRow(ctx, a.sql().countIncomplete, limit).Scan(&n)
	return n, err
}

func readIDs(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) ([]string, error) {
	rows, _ := db.Query(ctx, sql, args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	return ids, nil
}
