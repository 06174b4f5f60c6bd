// Package pgtest gives each test a real, migrated Postgres database of its own.
//
// A package that uses it has a TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// The first [New] of a test binary starts a server, or uses the one of the
// environment variable TEST_DATABASE_URL, an administrator's URL. It then
// applies the migrations of both services to a template. Each database is a
// copy of that template, which takes tens of milliseconds. There is nothing to
// clean between tests, so all can run in parallel.
package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cleanupTime bounds a test's work on the server after its own context has
// ended.
const cleanupTime = 30 * time.Second

// shared is the test binary's server. Main sets it before the first test runs.
var shared *cluster //nolint:gochecknoglobals // testing has no other way from TestMain to a test

// Main runs a package's tests and then stops the server, if any test started it.
func Main(m *testing.M) {
	shared = &cluster{}
	defer shared.close()
	m.Run()
}

// DB is one test's database, with the schemas of both services.
type DB struct {
	// Admin connects as the administrator, VideoURL and CatalogURL as the
	// service's own role, which can access its own schema only.
	Admin, VideoURL, CatalogURL string

	name string
}

// New creates a database. It is dropped when the test ends, even if connections
// to it remain.
func New(tb testing.TB) *DB {
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

// Pool returns a pool on one of the database's URLs. The end of the test closes
// it, and waits until its connections are returned.
func (*DB) Pool(tb testing.TB, url string) *pgxpool.Pool {
	tb.Helper()
	pool, err := pgxpool.New(tb.Context(), url)
	if err != nil {
		tb.Fatalf("pgtest: open pool: %v", err)
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Terminate ends every session of the database, as a failover would. New
// sessions are accepted at once.
func (d *DB) Terminate(tb testing.TB) {
	tb.Helper()
	_, err := shared.admin.Exec(tb.Context(),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`, d.name)
	if err != nil {
		tb.Fatalf("pgtest: terminate sessions of %s: %v", d.name, err)
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
