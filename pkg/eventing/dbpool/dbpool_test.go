package dbpool_test

import (
	"context"
	"sync/atomic"
	"testing"

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
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { connected++; return nil }
	cfg.ConnConfig.OnPgError = func(*pgconn.PgConn, *pgconn.PgError) bool { failed++; return true }
	cfg.BeforeClose = func(*pgx.Conn) { closed.Add(1) }
	dbpool.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pool.Exec(t.Context(), `SELECT 1/0`)
	pool.Close()
	if n := closed.Load(); err == nil || connected != 1 || failed != 1 || n != 1 {
		t.Errorf("%v: the caller saw %d connections, %d errors and %d ends, want one of each", err, connected, failed, n)
	}
}
