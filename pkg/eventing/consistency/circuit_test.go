package consistency

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

var errAway = errors.New("away")

func away(err error) bool { return errors.Is(err, errAway) }

// do makes one call that ends with err, and reports whether it was made.
func do(t *testing.T, c *circuit, err error) (called bool) {
	t.Helper()
	got := c.do(t.Context(), func(context.Context) error { called = true; return err }, away)
	if called && !errors.Is(got, err) || !called && !errors.Is(got, errOpen) {
		t.Fatalf("called %t, error %v; the call's was %v", called, got, err)
	}
	return called
}

func TestOpensAfterFailuresInARowAndProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(10, time.Second)
		open := func() {
			for range 5 {
				if !do(t, c, errAway) {
					t.Fatal("open too early")
				}
			}
		}
		for range 4 {
			do(t, c, errAway)
		}
		do(t, c, nil) // a success in between resets the count
		open()
		if do(t, c, nil) {
			t.Error("closed after five failures in a row")
		}
		backoff.Sleep(t.Context(), 5*time.Second, nil)
		if !do(t, c, errAway) || do(t, c, nil) {
			t.Error("want one probe, which fails, and no second call")
		}
		backoff.Sleep(t.Context(), 5*time.Second, nil)
		impatient, cancel := context.WithCancel(t.Context())
		if err := c.do(impatient, func(context.Context) error { cancel(); return errAway }, away); !errors.Is(err, errAway) {
			t.Errorf("no probe after another pause: %v", err)
		}
		for range 2 {
			if !do(t, c, nil) {
				t.Error("a probe that was cut off must not bar the way to the next, and one that succeeds closes the circuit")
			}
		}
		open()
	})
}

// A panic says nothing about the dependency, and the next probe has its turn.
func TestAProbeThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(10, time.Second)
		for range 5 {
			do(t, c, errAway)
		}
		backoff.Sleep(t.Context(), 5*time.Second, nil)
		func() {
			defer func() { _ = recover() }()
			_ = c.do(t.Context(), func(context.Context) error { panic("a bug") }, away)
			t.Error("no panic: the probe was not made")
		}()
		if !do(t, c, nil) {
			t.Error("the way is barred after a probe that panicked")
		}
	})
}

func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(10, time.Second)
		for range 5 {
			do(t, c, errAway)
		}
		backoff.Sleep(t.Context(), 5*time.Second, nil)
		release := make(chan struct{})
		go c.do(t.Context(), func(context.Context) error { <-release; return nil }, away)
		synctest.Wait()
		if do(t, c, nil) {
			t.Error("a second probe during the first")
		}
		close(release)
		synctest.Wait()
		if !do(t, c, nil) {
			t.Error("still open after a probe that succeeded")
		}
	})
}

// Calls that began before the circuit opened, and fail after that, do not postpone the probe.
func TestLateFailuresDoNotPostponeTheProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(20, time.Second)
		release := make(chan struct{})
		for range 12 {
			go c.do(t.Context(), func(context.Context) error { <-release; return errAway }, away)
		}
		synctest.Wait()
		for range 5 {
			do(t, c, errAway)
		}
		until := c.until
		backoff.Sleep(t.Context(), time.Millisecond, nil)
		close(release)
		synctest.Wait()
		if c.trips != 1 || !c.until.Equal(until) {
			t.Errorf("%d trips, the probe is due %s later", c.trips, c.until.Sub(until))
		}
	})
}

func TestCallsUnderWayAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCircuit(1, time.Second)
		release, results := make(chan struct{}), make(chan error, 30)
		calls := 0
		for range 20 {
			go func() {
				results <- c.do(t.Context(), func(context.Context) error { calls++; <-release; return nil }, away)
			}()
		}
		synctest.Wait()
		if calls != 1 || len(results) != 3 {
			t.Errorf("%d calls under way, %d turned away at once; want 1 and 3, with 16 waiting", calls, len(results))
		}
		backoff.Sleep(t.Context(), 2*time.Second, nil)
		close(release)
		synctest.Wait()
		ok := 0
		for range 20 {
			if err := <-results; err == nil {
				ok++
			} else if !errors.Is(err, errOpen) {
				t.Errorf("%v", err)
			}
		}
		if ok != 1 {
			t.Errorf("%d calls were made; the others' time ran out before their turn", ok)
		}
	})
}
