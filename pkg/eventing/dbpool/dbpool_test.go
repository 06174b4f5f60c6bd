package dbpool_test

import (
	"context"
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
	cfg.AfterConnect = func(context.Context, *pgx.Conn) error { connected++; return nil }
	cfg.ConnConfig.OnPgError = func(*pgconn.PgConn, *pgconn.PgError) bool { failed++; return true }
	dbpool.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), `SELECT 1/0`); err == nil || connected != 1 || failed != 1 {
		t.Errorf("%v: %d connections and %d errors were shown to the caller, want one of each", err, connected, failed)
	}
}
