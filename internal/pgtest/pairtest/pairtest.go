// Package pairtest gives each test a database with the schemas of both services; see
// package pgtest. A package that uses it has a TestMain:
//
//	func TestMain(m *testing.M) { pairtest.Main(m) }
package pairtest

import (
	"context"
	"log/slog"
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/migrations"
)

// Main runs a package's tests and then stops the server, if any test started it.
func Main(m *testing.M) {
	pgtest.MainWith(m, func(ctx context.Context, adminURL string) error {
		for _, s := range []migrations.Service{migrations.Video, migrations.Catalog} {
			if err := migrations.Up(ctx, adminURL, s, slog.New(slog.DiscardHandler)); err != nil {
				return err
			}
		}
		return nil
	})
}

// DB is one test's database, with the schemas of both services.
type DB struct {
	*pgtest.Database

	// VideoURL and CatalogURL connect as the service's own role, which can access
	// its own schema only.
	VideoURL, CatalogURL string
}

// New creates a database. It is dropped when the test ends, even if connections
// to it remain.
func New(tb testing.TB) *DB {
	tb.Helper()
	db := pgtest.NewDatabase(tb)
	return &DB{db, db.As(tb, migrations.Video.Role()), db.As(tb, migrations.Catalog.Role())}
}
