package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A Querier is a pool, a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Exec runs a statement, which must succeed.
func Exec(tb testing.TB, db Querier, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// Value returns the only column of the first row of a query, which must succeed.
func Value[T any](tb testing.TB, db Querier, query string, args ...any) (v T) {
	tb.Helper()
	if err := db.QueryRow(tb.Context(), query, args...).Scan(&v); err != nil {
		tb.Fatalf("%s: %v", query, err)
	}
	return v
}

// Begin begins a transaction, which the test ends.
func Begin(tb testing.TB, db Querier) pgx.Tx {
	tb.Helper()
	tx, err := db.Begin(tb.Context())
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	return tx
}

// End ends a transaction by its Commit or Rollback.
func End(tb testing.TB, end func(context.Context) error) {
	tb.Helper()
	if err := end(tb.Context()); err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
}
