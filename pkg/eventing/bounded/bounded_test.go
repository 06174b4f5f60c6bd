package bounded_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/bounded"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A statement that the server does not answer ends with the limit, and so does the wait for a
// connection. Each error has the statement's name.
func TestTheLimit(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	db := pg.Pool(t, pg.URL)
	short := bounded.Pool{DB: db, Limit: 50 * time.Millisecond}
	sleep := short.Statement("sleep", `SELECT pg_sleep(3600)`)
	calls := map[string]func(context.Context) error{
		"Scan":    func(ctx context.Context) error { return sleep.Scan(ctx) },
		"Exec":    func(ctx context.Context) error { _, err := sleep.Exec(ctx); return err },
		"Collect": func(ctx context.Context) error { _, err := bounded.Collect(ctx, sleep, pgx.RowTo[string]); return err },
		"Tx": func(ctx context.Context) error {
			return short.Tx(ctx, "sleep", func(ctx context.Context, tx pgx.Tx) error {
				_, err := tx.Exec(ctx, `SELECT pg_sleep(3600)`)
				return err
			})
		},
	}
	check := func(t *testing.T, call func(context.Context) error) {
		t.Helper()
		if err := call(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, bounded.ErrLimit) || !strings.HasPrefix(err.Error(), "sleep: ") {
			t.Errorf("error %v", err)
		}
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { check(t, call) })
	}
	for range db.Config().MaxConns {
		conn, err := db.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	for name, call := range calls {
		t.Run(name+" without a connection", func(t *testing.T) { check(t, call) })
	}
}

// The limit is not the cause of what ends well, of an error before it, or of the end of the caller's context.
func TestOtherEnds(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		ctx   context.Context //nolint:containedctx // a case of the table
		limit time.Duration
		do    func(context.Context) error
		want  error
	}{
		"late":      {t.Context(), 0, func(ctx context.Context) error { <-ctx.Done(); return nil }, nil},
		"refused":   {t.Context(), time.Hour, func(context.Context) error { return refused }, refused},
		"no caller": {ended, time.Hour, context.Context.Err, context.Canceled},
	} {
		if err := bounded.Run(tc.ctx, tc.limit, tc.do); !errors.Is(err, tc.want) || errors.Is(err, bounded.ErrLimit) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
	}
}

// The results are the statement's, and a transaction that fails leaves nothing.
func TestResults(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	pool, ctx := bounded.Pool{DB: pg.Pool(t, pg.Admin), Limit: time.Minute}, t.Context()
	fail := errors.New("no")
	insert := func(n int, end error) error {
		return pool.Tx(ctx, "insert", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO t SELECT generate_series(1, $1)`, n)
			return errors.Join(err, end)
		})
	}
	if _, err := pool.Statement("create", `CREATE TABLE t (n int)`).Exec(ctx); err != nil {
		t.Fatal(err)
	}
	if err := insert(3, nil); err != nil {
		t.Fatal(err)
	}
	if err := insert(4, fail); !errors.Is(err, fail) || !strings.HasPrefix(err.Error(), "insert: ") {
		t.Errorf("error %v", err)
	}
	if n, err := pool.Statement("change", `UPDATE t SET n = n + 1 WHERE n > $1`, 1).Exec(ctx); n != 2 || err != nil {
		t.Errorf("%d rows changed, %v, want 2", n, err)
	}
	all, err := bounded.Collect(ctx, pool.Statement("list", `SELECT n FROM t ORDER BY n`), pgx.RowTo[int])
	if len(all) != 3 || all[2] != 4 || err != nil {
		t.Errorf("rows %v, %v, want 1, 3, 4", all, err)
	}
	var n int
	if err := pool.Statement("find", `SELECT n FROM t WHERE n = $1`, 99).Scan(ctx, &n); !errors.Is(err, pgx.ErrNoRows) {
		t.Errorf("error %v, want no rows", err)
	}
}
