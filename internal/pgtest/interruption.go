package pgtest

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// mostStatements bounds the runs of EachStatement.
const mostStatements = 100

// EachStatement runs a test of an operation again and again. In the first run no statement is interrupted. In
// run n after it, Postgres ends the session that is about to send the operation's n-th statement. The runs end
// with the first one in which the operation has no n-th statement. BEGIN, COMMIT and a batch count as one
// statement each.
//
// The test makes its own database. It calls Pool for the operation's pool, and Begin before the operation.
func EachStatement(t *testing.T, test func(*testing.T, *Interruption)) {
	t.Helper()
	for n := 0; n <= mostStatements; n++ {
		i := &Interruption{at: n}
		name := "uninterrupted"
		if n > 0 {
			name = "statement " + strconv.Itoa(n)
		}
		t.Run(name, func(t *testing.T) { test(t, i) })
		if n > 0 && !i.Happened() {
			if n == 1 {
				t.Error("the operation has no statement")
			}
			return
		}
	}
	t.Errorf("the operation has more than %d statements", mostStatements)
}

// Interruption ends a session before one statement of an operation. It implements pgx's tracers.
type Interruption struct {
	at int // the number of the statement, from 1 on; 0: none
	tb testing.TB

	mu       sync.Mutex
	begun    bool
	sent     int // statements since Begin
	happened bool
}

// Pool returns the pool for the operation. url is that of a test's database.
func (i *Interruption) Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	i.tb = tb
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatalf("interruption: %v", err)
	}
	config.ConnConfig.Tracer = i
	pool, err := pgxpool.NewWithConfig(tb.Context(), config)
	if err != nil {
		tb.Fatalf("interruption: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Begin makes the next statement of the pool the first one of the operation.
func (i *Interruption) Begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.begun, i.sent = true, 0
}

// Happened reports whether a session was ended.
func (i *Interruption) Happened() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.happened
}

// TraceQueryStart implements pgx.QueryTracer.
func (i *Interruption) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	i.count(conn)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (*Interruption) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (i *Interruption) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	i.count(conn)
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (*Interruption) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (*Interruption) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// count counts a statement. It ends the session of conn if this is the statement to interrupt, and waits for
// the session's end.
func (i *Interruption) count(conn *pgx.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.begun {
		return
	}
	if i.sent++; i.sent != i.at {
		return
	}
	i.happened = true
	var ended bool
	err := shared.admin.QueryRow(context.WithoutCancel(i.tb.Context()), `SELECT pg_terminate_backend($1, 60000)`, conn.PgConn().PID()).Scan(&ended)
	if err != nil || !ended {
		i.tb.Errorf("interruption: the session has not ended: %v", err)
	}
}
