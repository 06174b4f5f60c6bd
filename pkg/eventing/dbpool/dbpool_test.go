package dbpool_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/dbpool"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestTheCallersFunctionsRunAsWell(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(pgtest.New(t).Admin)
	if err != nil {
		t.Fatal(err)
	}
	connected, failed := 0, 0
	var closed atomic.Int32 // the pool closes its connections in goroutines
	var refuses error
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { connected++; return refuses }
	cfg.ConnConfig.OnPgError = func(*pgconn.PgConn, *pgconn.PgError) bool { failed++; return true }
	cfg.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	dbpool.Configure(cfg)
	pool := pgtest.Open(t, cfg)
	_, err = pool.Exec(t.Context(), `SELECT 1/0`)
	pool.Close()
	if n := closed.Load(); err == nil || connected != 1 || failed != 1 || n != 1 {
		t.Errorf("%v: the caller saw %d connections, %d errors and %d ends, want one of each", err, connected, failed, n)
	}
	refuses = errors.New("no such role")
	if err := pgtest.Open(t, cfg).Ping(t.Context()); !errors.Is(err, refuses) {
		t.Errorf("%v, want the caller's error", err)
	}
}

// A statement that ends soon after its caller has hung up costs no connection.
func TestAHangUpCostsNoConnection(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(pgtest.New(t).Admin)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	dbpool.Configure(cfg)
	dbpool.ForRequests(cfg)
	pool := pgtest.Open(t, cfg)
	// On a busy machine a statement may take longer than it is given.
	const wanted, most = 5, 50
	kept := 0
	for n := 0; n < most && kept < wanted; n++ {
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := pool.Stat().NewConnsCount()
		hasty, hangUp := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, _ = pool.Exec(hasty, `SELECT pg_sleep(0.1)`) // it may have its result
		hangUp()
		if err := pool.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pool.Stat().NewConnsCount() == before {
			kept++
		}
	}
	if kept < wanted {
		t.Errorf("%d connections of %d are kept", kept, most)
	}
}
