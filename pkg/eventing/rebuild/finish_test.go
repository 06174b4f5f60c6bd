package rebuild_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// After a migration that the comparison cannot read, an operator gives the rebuild up.
func TestAWayOutOfChecking(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	dying, kill := context.WithCancel(t.Context())
	defer kill()
	f.at = func(step string) {
		if step == "begin checking type one" {
			kill()
		}
	}
	if _, err := f.Run(dying, ada, rebuild.Options{}, f); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	f.at = func(string) {}
	f.exec(t, `ALTER TABLE one DROP COLUMN body`)
	if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); err == nil {
		t.Error("rows without their column were compared")
	}
	if err := f.Rollback(t.Context(), ada); !errors.Is(err, rebuild.ErrShape) || !strings.Contains(err.Error(), "a migration ran") {
		t.Errorf("rollback: %v", err)
	}
	if err := f.Finish(t.Context(), ada, false); !errors.Is(err, rebuild.ErrPhase) {
		t.Errorf("finish: %v", err)
	}
	if err := f.Finish(t.Context(), ada, true); err != nil {
		t.Errorf("finish unchecked: %v", err)
	}
	f.phase(t, rebuild.None)
	f.serve(t, `UPDATE one SET version = version + 1`)
}

// Somebody has dropped a table that looked forgotten. The triggers fail on it, until the rebuild is given up.
func TestADroppedCopyIsInTheState(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20)
	dying, kill := context.WithCancel(t.Context())
	defer kill()
	f.at = func(step string) {
		if step == "begin comparing type one" {
			kill()
		}
	}
	if _, err := f.Run(dying, ada, rebuild.Options{}, f); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	missing := func() string {
		t.Helper()
		s, err := f.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(s.Missing, " ")
	}
	if got := missing(); got != "" {
		t.Errorf("missing before the drop: %s", got)
	}
	f.exec(t, `DROP TABLE one_shadow`)
	if got := missing(); got != "one_shadow" {
		t.Errorf("missing after the drop: %q", got)
	}
	const write = `UPDATE one SET version = version + 1`
	if _, err := f.app.Exec(t.Context(), write); err == nil {
		t.Error("a write passed over the missing copy")
	}
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	f.serve(t, write)
}

// A statement after the exchange that fails keeps no copy.
func TestFinishAfterAFault(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	f.Rebuild = rebuild.New(f.admin, `SELECT 1 / 0`, f.part(one), f.part(two))
	fails := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "division by zero") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := f.Run(t.Context(), ada, rebuild.Options{}, f)
	fails("run", err)
	f.phase(t, rebuild.Checking)
	fails("rollback", f.Rollback(t.Context(), ada))
	f.phase(t, rebuild.RolledBack)
	err = f.Finish(t.Context(), ada, false)
	fails("finish", err)
	if err != nil && !strings.Contains(err.Error(), "the rebuild is finished, and its counters may be wrong") {
		t.Errorf("finish does not say that the rebuild is finished: %v", err)
	}
	f.phase(t, rebuild.None)
}

// A rebuild that is done is not done again under the same name.
func TestARunOfADoneRebuild(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	f.run(t)
	if r, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, rebuild.ErrPhase) {
		t.Errorf("%+v, %v", r, err)
	}
	f.phase(t, rebuild.Done)
	if err := f.Finish(t.Context(), ada, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f); err != nil {
		t.Error(err)
	}
}

// A rebuild ends also if a person has removed a part of it by hand. Without the shadow, for
// example, the mirror makes each write of the served table fail until Finish has removed it.
func TestFinishAfterARemovalByHand(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"shadow":  `DROP TABLE one_shadow`,
		"trigger": `DROP TRIGGER mirror_inserted ON one`,
		"mirror":  `DROP FUNCTION mirror_one() CASCADE`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 10)
			f.run(t)
			f.exec(t, sql)
			if err := f.Finish(t.Context(), ada, false); err != nil {
				t.Fatal(err)
			}
			f.phase(t, rebuild.None)
			f.serve(t, `UPDATE one SET version = version + 1`)
			f.serve(t, `INSERT INTO one (a, version, updated_at) VALUES ($1, 1, now())`, newID())
			f.run(t)
		})
	}
}

// A command that begins while another process exchanges or removes the tables waits for it. The wait for one
// lock is short, so one wait is not enough.
func TestTheStateIsReadBehindAnotherProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	f.run(t)
	for name, read := range map[string]func() error{
		"state": func() error { _, err := f.State(t.Context()); return err },
		"need":  func() error { _, err := f.Need(t.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			tx := pgtest.Begin(t, f.admin)
			defer tx.Rollback(context.WithoutCancel(t.Context()))
			pgtest.Exec(t, tx, `LOCK TABLE one, rebuild_state IN ACCESS EXCLUSIVE MODE`)
			done := make(chan error, 1)
			go func() { done <- read() }()
			// Neither a wait nor a pause between two waits ends read.
			for _, waits := range []bool{true, false, true} {
				for len(ask[int32](t, f, `SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)) > 0 != waits {
					select {
					case err := <-done:
						t.Fatalf("it has ended: %v", err)
					default:
					}
				}
			}
			pgtest.End(t, tx.Rollback)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
