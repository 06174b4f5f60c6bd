package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// A process may die at any step: the next one goes on from there, and the result is the same.
// The work before is not done again, but for the page or the comparison under way.
func TestARebuildIsContinued(t *testing.T) {
	t.Parallel()
	var steps []string
	observe := newFixture(t, 250)
	observe.at = func(step string) { steps = append(steps, step) }
	observe.run(t)
	if len(steps) < 12 {
		t.Fatalf("steps %q", steps)
	}
	for n := range steps {
		t.Run(fmt.Sprintf("%d %s", n, steps[n]), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 250)
			f.exec(t, `UPDATE one SET body = 'wrong' WHERE version = 1`)
			f.exec(t, `DELETE FROM two WHERE version = 2`)
			dying, kill := context.WithCancelCause(t.Context())
			defer kill(nil)
			died, filled, seen := errors.New("the process died"), 0, 0
			f.at = func(step string) {
				seen++
				if seen == n+1 {
					kill(died)
				}
				if step[:4] == "fill" {
					filled++
				}
			}
			if _, err := f.Run(dying, ada, rebuild.Options{}, f); err == nil || !errors.Is(context.Cause(dying), died) {
				t.Fatalf("step %d of %d: %v", n, seen, err)
			}
			f.serve(t, `UPDATE two SET updated_at = now()`)
			f.run(t)
			if filled > 7 {
				t.Errorf("%d pages were read of 6", filled)
			}
			f.phase(t, rebuild.Done)
			f.same(t, "one", "two")
		})
	}
}

// Of two processes one rebuilds.
func TestOneProcessRebuilds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	second := 0
	f.at = func(step string) {
		if step != "fill one" {
			return
		}
		second++
		for name, do := range map[string]func() error{
			"run":      func() error { _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); return err },
			"rollback": func() error { return f.Rollback(t.Context(), ada) },
			"finish":   func() error { return f.Finish(t.Context(), ada, false) },
		} {
			if err := do(); !errors.Is(err, rebuild.ErrBusy) {
				t.Errorf("%s while another process works: %v", name, err)
			}
		}
	}
	f.run(t)
	if second != 1 {
		t.Errorf("tried %d times", second)
	}
}

// The process may be of another release, so the name of the lock is a contract between releases.
func TestTheNameOfTheLockIsAContract(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	other, err := f.admin.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	pgtest.Exec(t, other, `SELECT pg_advisory_lock(hashtext('lockstep rebuild app'))`)
	if err := f.Finish(t.Context(), ada, false); !errors.Is(err, rebuild.ErrBusy) {
		t.Errorf("while a process of another release works: %v", err)
	}
	pgtest.Exec(t, other, `SELECT pg_advisory_unlock_all()`)
	if err := f.Finish(t.Context(), ada, false); errors.Is(err, rebuild.ErrBusy) {
		t.Errorf("when that process has ended: %v", err)
	}
}

// loseLock ends the sessions that hold the lock of a rebuild, as a failover would.
func (f *fixture) loseLock(t *testing.T) {
	t.Helper()
	const holders = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	f.exec(t, `SELECT pg_terminate_backend(pid) FROM (`+holders+`) AS l`)
	for len(ask[int32](t, f, holders)) > 0 {
	}
}

// A process that has lost its lock does not undo what the next one decides: neither the phase
// nor the tables that are served.
func TestAProcessThatLostItsLock(t *testing.T) {
	t.Parallel()
	rollback := func(t *testing.T, f *fixture) error { return f.Rollback(t.Context(), ada) }
	run := func(t *testing.T, f *fixture) error {
		_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
		return err
	}
	finish := func(t *testing.T, f *fixture) error { return f.Finish(t.Context(), ada, false) }
	begin := func(t *testing.T, f *fixture) error {
		dying, kill := context.WithCancel(t.Context())
		defer kill()
		f.at = func(string) { kill() }
		if _, err := f.Run(dying, ada, rebuild.Options{}, f); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("the second rebuild ended: %w", err)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		at     string
		second []func(*testing.T, *fixture) error
		phase  rebuild.Phase
	}{
		"rolled back while it checks":       {"begin checking type one", []func(*testing.T, *fixture) error{rollback}, rebuild.RolledBack},
		"rolled back while it fills":        {"fill two", []func(*testing.T, *fixture) error{run, rollback}, rebuild.RolledBack},
		"rolled back while it compares":     {"begin comparing type two", []func(*testing.T, *fixture) error{run, rollback}, rebuild.RolledBack},
		"finished while it checks":          {"begin checking type two", []func(*testing.T, *fixture) error{run, finish}, rebuild.None},
		"another one fills while it checks": {"begin checking type two", []func(*testing.T, *fixture) error{run, finish, begin}, rebuild.Filling},
		"another one fills while it fills":  {"fill two", []func(*testing.T, *fixture) error{finish, begin}, rebuild.Filling},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 20)
			var served int64
			f.at = func(step string) {
				if step != tc.at {
					return
				}
				f.at = func(string) {}
				f.loseLock(t)
				for _, do := range tc.second {
					if err := do(t, f); err != nil {
						t.Error(err)
					}
				}
				f.at = func(string) {}
				served = f.oid(t)
			}
			if err := run(t, f); !errors.Is(err, rebuild.ErrPhase) {
				t.Errorf("the first process: %v", err)
			}
			f.phase(t, tc.phase)
			if f.oid(t) != served || served == 0 {
				t.Error("the tables were exchanged")
			}
		})
	}
}

// Readers and writers go on through an exchange and back. Their statements were prepared
// before, and none fails; each reader sees versions that only grow.
func TestReadsThroughTheExchange(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 40)
	f.exec(t, `DROP INDEX one_by_event`) // with it a writer may have to try again: see Part.Table
	ids := ask[string](t, f, `SELECT a::text FROM one ORDER BY a`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var clients sync.WaitGroup
	var prepared sync.WaitGroup
	client := func(name string, do func(conn *pgx.Conn) error) {
		prepared.Add(1)
		clients.Go(func() {
			first := sync.OnceFunc(prepared.Done)
			defer first()
			err := f.app.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
				for ctx.Err() == nil {
					if err := do(conn.Conn()); err != nil && ctx.Err() == nil {
						return err
					}
					first()
				}
				return nil
			})
			if err != nil && ctx.Err() == nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	highest := map[string]int64{}
	client("reader", func(conn *pgx.Conn) error {
		rows, _ := conn.Query(ctx, `SELECT a::text, version FROM one WHERE a = ANY ($1::text[]::uuid[])`, ids)
		seen := 0
		var id string
		var version int64
		_, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error {
			seen++
			if version < highest[id] {
				t.Errorf("version %d after %d", version, highest[id])
			}
			highest[id] = version
			return nil
		})
		if err == nil && seen != len(ids) {
			t.Errorf("%d rows, want %d", seen, len(ids))
		}
		return err
	})
	n := 0
	client("writer", func(conn *pgx.Conn) error {
		n++
		var at time.Time // the owner's row comes first
		id, event := ids[n%len(ids)], newID()
		err := f.admin.QueryRow(ctx, `UPDATE owned_one SET version = version + 1, updated_at = now(), last_event_id = $2 WHERE a = $1 RETURNING updated_at`, id, event).Scan(&at)
		if err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `UPDATE one SET version = version + 1, updated_at = $2, last_event_id = $3::text::uuid WHERE a = $1::text::uuid`, id, at, event)
		return err
	})
	client("writer of two", func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `UPDATE two SET epoch = epoch WHERE version = 1`)
		return err
	})
	prepared.Wait()
	f.run(t)
	if err := f.Rollback(t.Context(), ada); err != nil {
		t.Fatal(err)
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	cancel()
	clients.Wait()
	if behind := ask[int64](t, f, `SELECT count(*) FROM one JOIN owned_one AS o USING (a) WHERE one.version + 1 < o.version`)[0]; behind != 0 {
		t.Errorf("%d rows are behind after %d writes", behind, n)
	}
}

// A reader that stays holds the exchange up, and not other readers: it gives way to them, and
// waits for its turn.
func TestTheExchangeGivesWay(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	long := pgtest.Begin(t, f.app)
	defer long.Rollback(context.WithoutCancel(t.Context()))
	held := false
	f.at = func(step string) {
		if step == "begin comparing type two" {
			if _, err := long.Exec(t.Context(), `SELECT FROM one`); err != nil {
				t.Error(err)
			}
			held = true
		}
	}
	var running sync.WaitGroup
	running.Go(func() { f.run(t) })
	waits := func() bool {
		return slices.Contains(ask[string](t, f, `SELECT left(query, 10) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`), "LOCK TABLE")
	}
	for range 2 { // attempts
		for !waits() {
		}
		f.serve(t, `UPDATE one SET epoch = epoch`) // which waits behind it
		for waits() {
		}
	}
	if !held {
		t.Error("the exchange did not wait for the reader")
	}
	f.phase(t, rebuild.Comparing)
	pgtest.End(t, long.Rollback)
	running.Wait()
	f.phase(t, rebuild.Done)
}
