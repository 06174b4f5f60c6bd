package outbox

import (
	"context"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
)

// slowCommits makes a few commits of relays and writers take up to two seconds, as behind a busy
// disk or a synchronous standby. A claim or a heartbeat in such a commit is overtaken by others.
func (h *historyRun) slowCommits(t *testing.T) {
	t.Helper()
	_, err := h.admin.Exec(t.Context(), `
		CREATE FUNCTION app.slow_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		  IF random() < TG_ARGV[0]::float8 THEN PERFORM pg_sleep(2 * random()); END IF;
		  RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON app.outbox DEFERRABLE INITIALLY DEFERRED
		  FOR EACH ROW EXECUTE FUNCTION app.slow_commit('0.0005');
		CREATE CONSTRAINT TRIGGER slow AFTER INSERT OR UPDATE ON app.outbox_relays DEFERRABLE INITIALLY DEFERRED
		  FOR EACH ROW EXECUTE FUNCTION app.slow_commit('0.2')`)
	if err != nil {
		t.Fatal(err)
	}
}

// disturb causes a fault that lasts for up to h.stop. A relay stands still for up to four times as
// long, so that its leases run out, and other relays regard it as dead.
func (h *historyRun) disturb(t *testing.T, dice *rand.Rand) {
	t.Helper()
	limit := time.Duration(dice.Int64N(int64(h.stop)))
	switch i := dice.IntN(len(h.relays)); dice.IntN(4) {
	case 0:
		if h.sessions {
			h.stopSession(t, limit)
		}
	case 1:
		h.stopProcess(t, h.relays[i].PID(), 4*limit)
	case 2:
		h.lockRows(t, limit)
	case 3:
		h.mistakeForGone(t)
	}
}

// mistakeForGone makes some rows look as if the sessions of their relays had ended. The relays live, or stand still.
func (h *historyRun) mistakeForGone(t *testing.T) {
	t.Helper()
	h.mistakes++
	h.exec(t, `
		UPDATE outbox_relays SET seen_at = now() - interval '7 s', session = 0
		 WHERE token IN (SELECT token FROM outbox_relays WHERE seen_at > '-infinity' AND random() < 0.5 FOR UPDATE SKIP LOCKED)`)
}

// stopSession stops a session of a relay or writer. A statement that its client gives up meanwhile
// is executed afterwards.
func (h *historyRun) stopSession(t *testing.T, limit time.Duration) {
	t.Helper()
	var pid int
	err := h.admin.QueryRow(t.Context(), `
		SELECT pid FROM pg_stat_activity
		 WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ILIKE '%outbox%' ORDER BY random() LIMIT 1`).Scan(&pid)
	if err != nil {
		t.Fatal(err)
	}
	h.stopProcess(t, pid, limit)
}

// stopProcess stops a process, and continues it after limit.
func (h *historyRun) stopProcess(t *testing.T, pid int, limit time.Duration) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err != nil || p.Signal(syscall.SIGSTOP) != nil { // it has just ended
		return
	}
	h.stops++
	h.faults.Go(func() {
		backoff.Sleep(t.Context(), limit, nil)
		_ = p.Signal(syscall.SIGCONT)
	})
}

// lockRows locks some pending events for a while.
func (h *historyRun) lockRows(t *testing.T, limit time.Duration) {
	t.Helper()
	h.locks++
	h.faults.Go(func() {
		err := pgx.BeginFunc(context.WithoutCancel(t.Context()), h.admin, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `
				SELECT FROM app.outbox WHERE published_at IS NULL AND random() < 0.3 ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED`)
			backoff.Sleep(t.Context(), limit, nil)
			return err
		})
		if err != nil {
			t.Errorf("lock rows: %v", err)
		}
	})
}
