// Package pgtest gives each test a real, migrated Postgres database of its own.
//
// A package that uses it has a TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The first [New] of a test binary starts a server, or uses the server that the environment
// variable TEST_DATABASE_URL names. Its value is an administrator's URL of Postgres 15 or later.
// New then migrates a template. The database of each test is a copy of the template, which takes
// tens of milliseconds. There is nothing to clean between tests, so all tests can run in
// parallel.
//
// An Example function has no testing.TB, and uses [NewExample].
//
// The databases here have the library's tables only: the schema app with the
// outbox, the inbox and the table of operators' actions, and the role
// app_service. Package pairtest makes databases with the schemas of both services.
package pgtest

import (
	"context"
	"embed"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/local/variables"
	"example.com/lockstep/pkg/eventing/dbpool"
	"example.com/lockstep/pkg/eventing/migrate"
)

// cleanupTime bounds a test's work on the server after its own context has
// ended.
const cleanupTime = 30 * time.Second

// shared is the test binary's server. Main sets it before the first test runs.
var shared *cluster //nolint:gochecknoglobals // testing has no other way from TestMain to a test

// Library is the schema of the databases that [New] makes.
var Library = migrate.Schema{
	Name: "app", Role: "app_service",
	Parts: []embed.FS{migrate.Outbox, migrate.Inbox, migrate.Operator},
}

// Main runs a package's tests and then stops the server, if any test started it.
func Main(m *testing.M) {
	MainWith(m, func(ctx context.Context, adminURL string) error {
		return Library.Up(ctx, adminURL, slog.New(slog.DiscardHandler))
	})
}

// MainWith is like [Main], but the function migrate makes the template that [NewDatabase]
// copies.
func MainWith(m *testing.M, migrate func(ctx context.Context, adminURL string) error) {
	variables.Forget()
	shared = &cluster{migrate: migrate}
	defer shared.close()
	m.Run()
}

// Database is one test's database.
type Database struct {
	// Admin connects as the administrator.
	Admin string

	name string
}

// DB is one test's database with the library's tables.
type DB struct {
	*Database

	// URL connects as app_service, which can access the schema app only.
	URL string
}

// New creates a database with the library's tables. It is dropped when the test
// ends, even if connections to it remain.
func New(tb testing.TB) *DB {
	tb.Helper()
	db := NewDatabase(tb)
	return &DB{db, db.As(tb, Library.Role)}
}

// NewDatabase is like [New], but returns no URL of the library's role.
func NewDatabase(tb testing.TB) *Database {
	tb.Helper()
	if shared == nil {
		tb.Fatal("pgtest: this package's TestMain must call pgtest.Main")
	}
	db, err := shared.clone(tb.Context())
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
		defer cancel()
		if err := shared.drop(ctx, db.name); err != nil {
			tb.Errorf("pgtest: %v", err)
		}
	})
	return db
}

// As returns the URL with which role connects to the database. The role must
// exist.
func (d *Database) As(tb testing.TB, role string) string {
	tb.Helper()
	u, err := shared.as(tb.Context(), role)
	if err != nil {
		tb.Fatalf("pgtest: role %s: %v", role, err)
	}
	return withDatabase(u, d.name)
}

// Pool returns a pool on one of the database's URLs. The end of the test closes
// it, and waits until its connections are returned.
func (*Database) Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	return Open(tb, Settings(tb, url))
}

// Settings returns the settings of a pool on the URL, as the library asks for them, for [Open].
func Settings(tb testing.TB, url string) *pgxpool.Config {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatalf("pgtest: %v", err)
	}
	dbpool.Configure(cfg)
	return cfg
}

// Open opens a pool that ends with the test, as [Database.Pool] says.
func Open(tb testing.TB, cfg *pgxpool.Config) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatalf("pgtest: open pool: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// wrap makes the pools with these settings use the connections that the function with returns for theirs.
func wrap(cfg *pgxpool.Config, with func(net.Conn) net.Conn) {
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return with(conn), nil
	}
}

// Terminate ends every session of the database, as a failover would. New
// sessions are accepted at once.
func (d *Database) Terminate(tb testing.TB) {
	tb.Helper()
	_, err := shared.admin.Exec(tb.Context(),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, d.name)
	if err != nil {
		tb.Fatalf("pgtest: terminate sessions of %s: %v", d.name, err)
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
