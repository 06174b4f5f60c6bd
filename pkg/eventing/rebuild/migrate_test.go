package rebuild_test

import (
	"embed"
	"errors"
	"log/slog"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

//go:embed testdata/*.sql
var slow embed.FS

// A rebuild does not begin while a migration runs, which would change the tables that it copies.
func TestNoRebuildDuringAMigration(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	gate, err := f.admin.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	migrations := pgtest.Library
	migrations.Own = slow
	ended := make(chan error, 1)
	go func() { ended <- migrations.Up(t.Context(), f.pg.Admin, slog.New(slog.DiscardHandler)) }()
	for !ask[bool](t, f, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)[0] {
		if len(ended) > 0 {
			t.Fatalf("the migration ended: %v", <-ended)
		}
	}
	if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrMigrating) {
		t.Errorf("during a migration: %v", err)
	}
	f.phase(t, rebuild.None)
	if _, err := gate.Exec(t.Context(), `SELECT pg_advisory_unlock(4711)`); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f); err != nil {
		t.Errorf("after it: %v", err)
	}
}
