// Package bounded runs statements within a time limit. A caller waits no longer than the limit,
// even if the server does not answer, or another session holds a lock. Only on a pool of
// [example.com/lockstep/pkg/eventing/dbpool.ForRequests], a statement that runs when the limit passes has a second more. TryAgain
// repeats work after a failed connection.
package bounded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrLimit is the error of a statement that did not end within its time limit, although the caller's
// context had not ended. The server is slow, or the connection to it is lost.
var ErrLimit = errors.New("the database did not answer in time")

// Pool is a pool of connections with a time limit. The limit is for each statement or transaction,
// and includes the wait for a connection.
type Pool struct {
	DB    *pgxpool.Pool
	Limit time.Duration
}

// Statement is a statement that is still to be run.
type Statement struct {
	pool      Pool
	name, sql string
	args      []any
}

// Statement returns a statement with its arguments. The errors of the statement begin with name.
func (p Pool) Statement(name, sql string, args ...any) Statement {
	return Statement{p, name, sql, args}
}

// Scan runs the statement and reads its row. The error wraps pgx.ErrNoRows if there is no row.
func (s Statement) Scan(ctx context.Context, to ...any) error {
	return s.pool.run(ctx, s.name, func(ctx context.Context) error {
		return s.pool.DB.QueryRow(ctx, s.sql, s.args...).Scan(to...)
	})
}

// Exec runs the statement, and returns how many rows it has written.
func (s Statement) Exec(ctx context.Context) (rows int64, err error) {
	err = s.pool.run(ctx, s.name, func(ctx context.Context) error {
		tag, err := s.pool.DB.Exec(ctx, s.sql, s.args...)
		rows = tag.RowsAffected()
		return err
	})
	return rows, err
}

// Collect runs a statement and returns its rows.
func Collect[T any](ctx context.Context, s Statement, row pgx.RowToFunc[T]) (all []T, err error) {
	err = s.pool.run(ctx, s.name, func(ctx context.Context) (err error) {
		rows, _ := s.pool.DB.Query(ctx, s.sql, s.args...) // CollectRows returns the error
		all, err = pgx.CollectRows(rows, row)
		return err
	})
	return all, err
}

// Tx runs do in a transaction. The errors of Tx begin with name.
func (p Pool) Tx(ctx context.Context, name string, do func(context.Context, pgx.Tx) error) error {
	return p.run(ctx, name, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, p.DB, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
}

func (p Pool) run(ctx context.Context, name string, do func(context.Context) error) error {
	if err := Run(ctx, p.Limit, do); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Run runs do with a context that ends after limit. If do fails because of the limit, the error wraps
// [ErrLimit].
func Run(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrLimit)
	defer cancel()
	err := do(ctx)
	if err != nil && context.Cause(ctx) == ErrLimit { //nolint:errorlint // the cause is the limit's own, not that of an outer call
		return fmt.Errorf("%w: %w", ErrLimit, err)
	}
	return err
}
