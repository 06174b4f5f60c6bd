package inbox

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// victimFreezes is how often a victim stops itself in the middle of its first
// event's transaction.
const victimFreezes = "LOCKSTEP_TEST_VICTIM_FREEZES"

// freezing is a spoil that stops the process n times.
func freezing(n int) func(eventing.Event) error {
	return func(e eventing.Event) error {
		if e.ID == killer.ID && n > 0 {
			n--
			return syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
		return nil
	}
}

// A process that stands still in the middle of a transaction, until the database
// ends that, does so at the expense of no event.
func TestAFrozenProcessSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	admin := b.pg.Pool(t, b.pg.Admin)
	_, err := admin.Exec(t.Context(), `DO $$ BEGIN EXECUTE format(
		'ALTER ROLE app_service IN DATABASE %I SET idle_in_transaction_session_timeout = ''1500ms''', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	const freezes = 2
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), victimDatabase+"="+b.pg.URL, victimBroker+"="+b.server.Addr, fmt.Sprint(victimFreezes, "=", freezes))
	out := filepath.Join(t.TempDir(), "output") // a buffer cannot be read before the child has ended
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range freezes {
		awaitStop(t, cmd.Process.Pid, out)
		pgtest.Until(t, "the database has ended its transaction", func() bool { return inTransaction(t, admin) == 0 })
		if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, content(out))
	}
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d attempts and %d dead letters", n, len(b.deadLettered("")))
	}
	if n := b.count(t, withDone); n != 1 {
		t.Error("it is not done")
	}
}

// awaitStop waits until a child has stopped. It asks the system for the child's state, as a shell does,
// because only Linux has it in /proc.
func awaitStop(t *testing.T, pid int, output string) {
	t.Helper()
	pgtest.Until(t, "it stands still", func() bool {
		var status syscall.WaitStatus
		changed, err := syscall.Wait4(pid, &status, syscall.WUNTRACED|syscall.WNOHANG, nil)
		if err != nil || changed == pid && !status.Stopped() {
			t.Fatalf("it has ended: %v, %v\n%s", status, err, content(output))
		}
		return changed == pid
	})
}

func content(file string) []byte {
	read, _ := os.ReadFile(file)
	return read
}

// inTransaction counts transactions, those too that wait for their next statement.
func inTransaction(t *testing.T, admin *pgxpool.Pool) (n int) {
	t.Helper()
	err := admin.QueryRow(t.Context(), `
		SELECT count(xact_start) FROM pg_stat_activity WHERE datname = current_database() AND usename = 'app_service'`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestStallDetector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testStallDetector) // a busy machine stalls, too
}

func testStallDetector(t *testing.T) {
	t.Helper()
	var p stallDetector
	began := time.Now()
	if p.stalledSince(began) {
		t.Error("frozen before it ever ran")
	}
	p.note(readClocks())
	if p.stalledSince(began) {
		t.Error("frozen right after a pulse")
	}
	p.last.Store(&reading{monotonic: began.Add(-2 * stallTime), wall: began.UnixNano()})
	if !p.stalledSince(began) {
		t.Error("not frozen, with a pulse that is overdue")
	}
	ctx, cancel := context.WithCancel(t.Context())
	go p.run(ctx)
	pgtest.Until(t, "it has beaten again", func() bool { return p.last.Load().monotonic.After(began) })
	cancel()
	if !p.stalledSince(began) || p.stalledSince(time.Now().Add(stallTime)) {
		t.Error("what it slept through is forgotten, or what comes later is not")
	}
}

// The wall clock steps back or forth while the process runs, is stopped, or stands still
// with its machine.
func TestStallByTwoClocks(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for name, tc := range map[string]struct {
		monotonic, wall time.Duration // from a tick to the next
		froze           bool
	}{
		"it runs":                              {tickEvery, tickEvery, false},
		"it runs, and the clock steps back":    {tickEvery, -hour, false},
		"it freezes":                           {2 * stallTime, 2 * stallTime, true},
		"it freezes, and the clock steps back": {2 * stallTime, -hour, true},
		"its machine stands still":             {0, hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p stallDetector
			start := time.Now()
			last := reading{monotonic: start, wall: start.Add(2 * hour).UnixNano()}
			p.note(last)
			began := start.Add(tc.monotonic / 2)
			last = reading{monotonic: start.Add(tc.monotonic), wall: last.wall + int64(tc.wall)}
			p.note(last)
			if p.stalledSince(began) != tc.froze {
				t.Errorf("frozen: %v, want %v", !tc.froze, tc.froze)
			}
			if p.stalledSince(last.monotonic.Add(1)) {
				t.Error("what comes later is frozen, too")
			}
		})
	}
}
