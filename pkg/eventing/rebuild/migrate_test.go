package rebuild_test

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/migrate"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

//go:embed testdata/*.sql
var slow embed.FS

// A rebuild waits while a migration runs, which would change the tables that it copies. It waits, too, while an index is created
// that no migration creates: only the served table would get that index.
func TestARebuildWaitsForMigrations(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*testing.T, *fixture) (end func()){
		"a migration": runningMigration,
		"an index":    func(t *testing.T, f *fixture) func() { return f.locked(t, migrate.IndexLock) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 10)
			end := hold(t, f)
			said := make(chan string, 100)
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			f.at = func(step string) {
				if strings.HasPrefix(step, "again: ") {
					said <- step
					giveUp()
				}
			}
			if _, err := f.Run(ctx, ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrMigrating) {
				t.Errorf("given up meanwhile: %v", err)
			}
			if len(said) != 1 {
				t.Fatalf("said %d times that it waits", len(said))
			}
			<-said
			f.phase(t, rebuild.None)
			ended := make(chan error, 1)
			go func() {
				_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
				ended <- err
			}()
			select {
			case <-said:
			case err := <-ended:
				t.Fatalf("the rebuild has not waited: %v", err)
			}
			f.phase(t, rebuild.None)
			end()
			if err := <-ended; err != nil || len(said) > 0 {
				t.Errorf("%v, said %d times more that it waits", err, len(said))
			}
			f.phase(t, rebuild.Done)
		})
	}
}

// locked holds an advisory lock in a session of its own.
func (f *fixture) locked(t *testing.T, key string) (unlock func()) {
	t.Helper()
	conn, err := f.admin.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	pgtest.Exec(t, conn, `SELECT pg_advisory_lock(`+key+`)`)
	return func() {
		if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_unlock(`+key+`)`); err != nil {
			t.Error(err)
		}
	}
}

// runningMigration begins a migration, which end ends.
func runningMigration(t *testing.T, f *fixture) (end func()) {
	t.Helper()
	unlock := f.locked(t, "4711")
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
	return func() {
		unlock()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
