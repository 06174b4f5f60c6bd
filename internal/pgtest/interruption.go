package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// EachStatement runs a test of an operation again and again. In the first run no statement is interrupted. Then
// there is a run for each statement that the first run has sent, in which Postgres ends the session that is about
// to send this statement. Such a run fails if the operation ends before that statement. BEGIN, COMMIT and a batch
// count as one statement each. Without LOCKSTEP_FULL there are ten of these runs at most, spread over the statements.
//
// The test makes its own database. It gives the operation a pool whose tracer is the Interruption, such as that of
// Pool, and calls Begin and End around the operation.
func EachStatement(t *testing.T, test func(*testing.T, *Interruption)) {
	t.Helper()
	const most = 10
	first := newInterruption(t, 0)
	if !t.Run("uninterrupted", func(t *testing.T) { test(t, first) }) {
		return
	}
	if first.sent == 0 {
		t.Error("the operation has sent no statement")
	}
	every := 1
	if os.Getenv("LOCKSTEP_FULL") == "" {
		every = (first.sent + most - 1) / most
	}
	for n := 1; n <= first.sent; n += every {
		t.Run(fmt.Sprintf("statement %d of %d", n, first.sent), func(t *testing.T) {
			t.Parallel()
			i := newInterruption(t, n)
			test(t, i)
			if !i.End() {
				t.Errorf("the operation has sent %d statements, so that none was interrupted", i.sent)
			}
		})
	}
}

// Interruption ends a session before one statement of an operation. It implements pgx's tracers.
type Interruption struct {
	Tracer

	t  *testing.T
	at int // the number of the statement, from 1 on; 0: none

	mu       sync.Mutex
	counting bool
	sent     int // statements between Begin and End
	happened bool
}

func newInterruption(t *testing.T, at int) *Interruption {
	i := &Interruption{t: t, at: at}
	i.Before = func(_ context.Context, conn *pgx.Conn, _ Trip) { i.send(conn) }
	return i
}

// Pool returns a pool for the operation, on a URL of the test's database.
func (i *Interruption) Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	cfg := Settings(tb, url)
	cfg.ConnConfig.Tracer = i
	return Open(tb, cfg)
}

// Begin makes the next statement of the pool the first one of the operation.
func (i *Interruption) Begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counting = true
}

// End is called after the operation. It reports whether a session was ended.
func (i *Interruption) End() (happened bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.counting = false
	return i.happened
}

// send counts a statement that conn is about to send. If this is the statement to interrupt, it ends the session of
// conn, and waits for its end.
func (i *Interruption) send(conn *pgx.Conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.counting {
		return
	}
	i.sent++
	if i.sent != i.at {
		return
	}
	i.happened = true
	var ended bool
	const end = `SELECT pg_terminate_backend($1, 60000)`
	if err := shared.admin.QueryRow(i.t.Context(), end, conn.PgConn().PID()).Scan(&ended); err != nil || !ended {
		i.t.Errorf("pgtest: the session has not ended: %v", err)
	}
}
