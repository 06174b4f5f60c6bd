package queue

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// genericPlan makes the session plan the next statement once, for all parameters, and along
// its indexes, whatever the statistics say. The session keeps statement and plan as long as
// it lasts; this costs a tenth of the time that planning each time takes. Without the other
// settings, a plan made for an empty table would read all of a full one. The settings end
// with the transaction, hence with the statement.
const genericPlan = `
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)`

// genericPlanShortWait is genericPlan for a statement that has a second way around locked
// rows. A claim has its rows locked for some milliseconds.
const genericPlanShortWait = genericPlan + `, set_config('lock_timeout', '100ms', true)`

// query runs one statement with genericPlan, and read takes its rows.
func (q Queue) query(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) error {
	return q.queryAfter(ctx, genericPlan, sql, args, read)
}

// queryAfter runs one statement after setup, which prepares its session.
func (q Queue) queryAfter(ctx context.Context, setup, sql string, args []any, read func(pgx.Rows) error) (err error) {
	if !q.keepsStatements {
		rows, err := q.db.Query(ctx, sql, append([]any{pgx.QueryExecModeCacheDescribe}, args...)...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return read(rows)
	}
	b := &pgx.Batch{}
	b.Queue(setup)
	b.Queue(sql, args...)
	results := q.db.SendBatch(ctx, b)
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

// queryRow is queryAfter for a statement with one row.
func (q Queue) queryRow(ctx context.Context, setup, sql string, args []any, to ...any) error {
	return q.queryAfter(ctx, setup, sql, args, func(rows pgx.Rows) error {
		if !rows.Next() {
			return errors.Join(errors.New("no row"), rows.Err())
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	})
}
