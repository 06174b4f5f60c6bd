package txn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/tenant"
)

// counted gives w counters of its own, and returns their values.
func counted(t *testing.T, w *Writer) func() (locked, busy int64) {
	t.Helper()
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("")
	w.locked, _ = meter.Int64Counter("locked")
	w.busy, _ = meter.Int64Counter("busy")
	return func() (locked, busy int64) {
		var now metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &now); err != nil {
			t.Fatal(err)
		}
		values := map[string]int64{}
		for _, scope := range now.ScopeMetrics {
			for _, m := range scope.Metrics {
				values[m.Name] = m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
			}
		}
		return values["locked"], values["busy"]
	}
}

// A write behind writes that take long is told so. Nobody holds a lock.
func TestAWriteBehindSlowOnesMeetsNoLock(t *testing.T) {
	t.Parallel()
	w := NewWriter(openWith(t, pgtest.New(t).URL, "2"))
	counts := counted(t, w)
	slow := begin(t, w, "a")
	<-slow.started
	w.budget = 10 * time.Millisecond
	// The second one waits for the same key, and the others for the only turn.
	for n, key := range []string{"", "a", "b"} {
		err := w.Write(t.Context(), tenant.All(), key, func(*Tx) error { t.Error("it is served"); return nil })
		if !errors.Is(err, ErrBusy) || errors.Is(err, ErrLocked) {
			t.Errorf("with the key %q: %v, want ErrBusy", key, err)
		}
		if locked, busy := counts(); locked != 0 || busy != int64(n)+1 {
			t.Errorf("with the key %q: counted %d locked and %d busy, want 0 and %d", key, locked, busy, n+1)
		}
	}
	gone, hangUp := context.WithCancel(t.Context())
	hangUp()
	if err := w.Write(gone, tenant.All(), "b", nil); !errors.Is(err, context.Canceled) || errors.Is(err, ErrBusy) {
		t.Errorf("a client that has gone: %v", err)
	}
	if _, busy := counts(); busy != 3 {
		t.Errorf("a client that has gone is counted: %d", busy)
	}
	slow.end()
	if err := <-slow.err; err != nil {
		t.Error(err)
	}
}

// A write that waits meets the locks of those for whom it waits: of the writes for its key, and, while
// none of these has a turn, of all writes that take turns. The time is virtual, and the test itself
// has the turns.
func TestAWriteBehindALock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key    string // of the write that waits
		turn   bool   // the write for the key a has a turn, and does not wait for one
		met    string // the key of a write that meets a lock
		before bool   // it does so before the other write begins to wait
		want   error
	}{
		"without a key, no lock":            {"", false, "", false, ErrBusy},
		"without a key":                     {"", false, "c", false, ErrLocked},
		"without a key, an old lock":        {"", false, "c", true, ErrBusy},
		"for a turn, no lock":               {"b", false, "", false, ErrBusy},
		"for a turn":                        {"b", false, "c", false, ErrLocked},
		"for a turn, an old lock":           {"b", false, "c", true, ErrBusy},
		"for a key, no lock":                {"a", true, "", false, ErrBusy},
		"for a key":                         {"a", true, "a", false, ErrLocked},
		"for a key, an old lock":            {"a", true, "a", true, ErrBusy},
		"for a key, a lock of another":      {"a", true, "c", false, ErrBusy},
		"for a key that waits for a turn":   {"a", false, "c", false, ErrLocked},
		"for a key that waits, no lock":     {"a", false, "", false, ErrBusy},
		"for a key that waits, an old lock": {"a", false, "c", true, ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &Writer{gate: gate{keys: map[string]*place{}}, turns: make(chan struct{}, 1), budget: lockBudget}
				counts := counted(t, w)
				w.turns <- struct{}{}
				a, err := w.gate.enter(t.Context(), "a", time.Now(), lockBudget)
				if err != nil {
					t.Fatal(err)
				}
				meet := func(before bool) {
					switch {
					case c.before != before, c.met == "":
					case c.met == "a":
						w.gate.endTurn(a, true)
					default:
						w.gate.endTurn(&place{}, true)
					}
				}
				meet(true)
				<-time.After(time.Second)
				answer := make(chan error)
				go func() {
					answer <- w.Write(t.Context(), tenant.All(), c.key, func(*Tx) error { t.Error("it is served"); return nil })
				}()
				<-time.After(time.Second)
				meet(false)
				if c.turn {
					w.gate.beginTurn(a)
				}
				err = <-answer
				if other := map[error]error{ErrBusy: ErrLocked, ErrLocked: ErrBusy}[c.want]; !errors.Is(err, c.want) || errors.Is(err, other) {
					t.Errorf("%v, want %v", err, c.want)
				}
				if locked, busy := counts(); locked+busy != 1 || (locked == 1) != errors.Is(c.want, ErrLocked) {
					t.Errorf("counted %d locked and %d busy", locked, busy)
				}
			})
		})
	}
}

// While no write gets a turn, none notices that a lock is gone. The writes for its key soon wait again,
// however many there are.
func TestAnOldLockRefusesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := gate{keys: map[string]*place{}}
		join := func() (ok bool) {
			_, ok = g.join("a", time.Now().Add(-lockBudget))
			return ok
		}
		for range maxBehindLock + 1 {
			if !join() {
				t.Fatal("nothing is locked, and a write is refused")
			}
		}
		g.endTurn(g.keys["a"], true)
		if join() {
			t.Error("a lock, and one more write waits")
		}
		<-time.After(lockBudget)
		if !join() {
			t.Error("the lock was met long ago, and a write is refused")
		}
	})
}
