package audit

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// recordedPage bounds the ids of one Recorded.
const recordedPage = 500

// Recorded returns the ids of aggregates of a type that have entries with a Record: up to
// 500 of those after an id, in order. Fewer are the last.
func Recorded(ctx context.Context, db *pgxpool.Pool, aggregateType, after string) (ids []string, last bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := db.Query(ctx, `
		SELECT DISTINCT aggregate_id FROM operator_actions
		 WHERE aggregate_type = $1 AND aggregate_id > $2 AND record IS NOT NULL
		 ORDER BY aggregate_id LIMIT $3`, aggregateType, after, recordedPage)
	ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, false, fmt.Errorf("read audit: %w", err)
	}
	return ids, len(ids) < recordedPage, nil
}

// Naming returns those of the aggregates that have an entry with text, such as a person's id, in
// its Record.
func Naming(ctx context.Context, db *pgxpool.Pool, aggregateType string, ids []string, text string) (naming []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := db.Query(ctx, `
		SELECT DISTINCT aggregate_id FROM operator_actions
		 WHERE aggregate_type = $1 AND aggregate_id = ANY ($2::text[]) AND record IS NOT NULL AND strpos(record::text, $3) > 0
		 ORDER BY aggregate_id`, aggregateType, ids, text)
	if naming, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, fmt.Errorf("read audit: %w", err)
	}
	return naming, nil
}

// Forget removes the Record of all entries about these aggregates, which may hold a
// person's text, and returns their number. Action, person, time and reason stay. If there
// was a Record, an entry of a has their number.
func Forget(ctx context.Context, db *pgxpool.Pool, a Actor, aggregateType string, ids []string) (forgotten int64, err error) {
	if err := a.Validate(); err != nil {
		return 0, fmt.Errorf("forget records: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = db.QueryRow(ctx, `SELECT operator_actions_forget($1, $2::text[], $3, $4)`, aggregateType, ids, a.By, a.Why).Scan(&forgotten)
	if err != nil {
		return 0, fmt.Errorf("forget records: %w", err)
	}
	return forgotten, nil
}
