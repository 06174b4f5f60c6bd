package pgtest

import (
	"context"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Statement is the last statement that was sent on a pool. It is for one
// goroutine at a time.
type Statement struct {
	SQL  string
	Args []any
	// before has the earlier statements of the same batch, because they may have set a role.
	before Trip
}

// Of returns a second pool with the settings of db. s holds the last statement that was sent on
// this pool.
func (s *Statement) Of(tb testing.TB, db *pgxpool.Pool) *pgxpool.Pool {
	tb.Helper()
	cfg := db.Config().Copy()
	cfg.ConnConfig.Tracer = &Tracer{Before: func(_ context.Context, _ *pgx.Conn, trip Trip) {
		last := trip[len(trip)-1]
		*s = Statement{last.SQL, last.Args, trip[:len(trip)-1]}
	}}
	return Open(tb, cfg)
}

// Pages runs the statement again, and returns the number of database pages that it accessed.
// This number is the cost of the statement, independent of the clock.
func (s *Statement) Pages(tb testing.TB, db *pgxpool.Pool) int {
	tb.Helper()
	var text string
	b := &pgx.Batch{}
	for _, earlier := range s.before {
		b.Queue(earlier.SQL, earlier.Args...)
	}
	b.Queue(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+s.SQL, s.Args...).QueryRow(func(row pgx.Row) error { return row.Scan(&text) })
	if err := db.SendBatch(tb.Context(), b).Close(); err != nil {
		tb.Fatalf("pgtest: explain: %v", err)
	}
	var plans []struct {
		Plan map[string]json.RawMessage `json:"Plan"` //nolint:tagliatelle // Postgres spells it so
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		tb.Fatalf("pgtest: explain: %d plans, %v", len(plans), err)
	}
	pages := 0
	for _, blocks := range []string{"Shared Hit Blocks", "Shared Read Blocks"} {
		n, err := strconv.Atoi(string(plans[0].Plan[blocks]))
		if err != nil {
			tb.Fatalf("pgtest: explain: %s: %v", blocks, err)
		}
		pages += n
	}
	return pages
}
