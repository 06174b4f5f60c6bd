package rebuild_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// vacuums holds the lock of a vacuum of a table until release.
func (f *fixture) vacuums(t *testing.T, table string) (release func()) {
	t.Helper()
	tx, err := f.admin.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `LOCK TABLE `+table+` IN SHARE UPDATE EXCLUSIVE MODE`)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
}

// Postgres ends an autovacuum for a transaction that waits longer than a read may. So each step
// that locks a served table waits for it in a mode that reads and events do not queue behind.
func TestAVacuumOfTheServedTable(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	dying, kill := context.WithCancel(t.Context())
	defer kill()
	f.at = func(step string) {
		if step == "begin comparing type two" {
			kill()
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want error
	}{
		{"begin", func() error { _, err := f.Run(dying, ada, rebuild.Options{}, f); return err }, context.Canceled},
		{"exchange", func() error {
			_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
			return err
		}, nil},
		{"rollback", func() error { return f.Rollback(t.Context(), ada) }, nil},
		{"finish", func() error { return f.Finish(t.Context(), ada, false) }, nil},
	} {
		release := f.vacuums(t, "one")
		var running sync.WaitGroup
		running.Go(func() {
			if err := step.do(); !errors.Is(err, step.want) {
				t.Errorf("%s: %v", step.name, err)
			}
		})
		var modes []string
		for len(modes) == 0 {
			modes = ask[string](t, f, `SELECT mode FROM pg_locks WHERE NOT granted AND relation = 'one'::regclass`)
		}
		if !slices.Equal(modes, []string{"ShareUpdateExclusiveLock"}) {
			t.Errorf("%s waits for %q", step.name, modes)
		}
		f.serve(t, `UPDATE one SET epoch = epoch`)
		release()
		running.Wait()
	}
}

// The vacuum of the shadow waits for another one.
func TestAVacuumOfTheShadow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	release := func() {}
	f.at = func(step string) {
		if step == "begin comparing type two" {
			release = f.vacuums(t, "one_shadow")
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
		ended <- err
	}()
	const waits = `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'VACUUM%' AND datname = current_database() AND
		wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '500 ms')`
	for !ask[bool](t, f, waits)[0] && len(ended) == 0 {
	}
	release()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A session has the settings that a rebuild relies on, whatever those of the database are.
func TestSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	for _, setting := range []string{"statement_timeout = '20s'", "idle_in_transaction_session_timeout = '20s'", "default_transaction_isolation = 'serializable'"} {
		f.exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ', current_database()) || $q$`+setting+`$q$; END $$`)
	}
	conn, err := pgx.Connect(t.Context(), f.pg.Admin)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := rebuild.Session("app")(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	var got []string
	err = conn.QueryRow(t.Context(), `SELECT array[current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),
		current_setting('default_transaction_isolation'), current_setting('lock_timeout'), current_setting('search_path'),
		current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_count')]`).Scan(&got)
	if want := []string{"0", "3s", "read committed", "200ms", `"app"`, "30", "3"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
