package consistency

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
)

// readModel is a projection; a test sets its state.
type readModel struct {
	mu       sync.Mutex
	versions map[string]int64
	looks    [][]Position
	fault    error
}

func (c *readModel) Positions(_ context.Context, aggregates []Position) (found []Position, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks = append(c.looks, aggregates)
	for _, p := range aggregates {
		if v, ok := c.versions[p.AggregateID]; ok {
			found = append(found, at(p.AggregateType, p.AggregateID, v))
		}
	}
	return found, c.fault
}

func (c *readModel) set(id string, version int64, fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.versions[id], c.fault = version, fault
}

func (c *readModel) looked() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.looks)
}

// watched are waiters with a watch. Time stands still while any goroutine can run: if a
// wait ends at the same instant, a notification has ended it, and not the poll.
func watched(t *testing.T, limit int, connected bool) (*Waiters, *readModel) {
	t.Helper()
	c := &readModel{versions: map[string]int64{}}
	log := slog.New(slog.DiscardHandler)
	w := NewWaiters(limit, c, notify.New(nil, "", "test", log))
	go w.watch(t.Context(), log, func() bool { return connected }, func() {})
	return w, c
}

// result is how a Wait in a goroutine has ended, and after how long.
type result struct {
	reached bool
	err     error
	took    time.Duration
}

func (w *Waiters) begin(ctx context.Context, wanted ...Position) <-chan result {
	ended := make(chan result, 1)
	began := time.Now()
	go func() {
		ok, err := w.Wait(ctx, wanted...)
		ended <- result{ok, err, time.Since(began)}
	}()
	return ended
}

func (w *Waiters) empty() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count == 0 && w.bytes == 0 && len(w.entries) == 0 && len(w.dirty) == 0
}

func TestWaitIsWokenByNotify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		ended := w.begin(t.Context(), at("v", "a", 2))
		synctest.Wait()
		c.set("a", 1, nil)
		w.Notify(t.Context(), at("v", "b", 0), at("v", "a", 0))
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("woken short of its version")
		}
		c.set("a", 2, nil)
		w.Notify(t.Context(), at("v", "b", 0))
		synctest.Wait()
		if len(ended) != 0 {
			t.Fatal("woken by another aggregate")
		}
		w.Notify(t.Context(), at("v", "a", 0))
		if r := <-ended; !r.reached || r.took != 0 {
			t.Errorf("not woken by its own aggregate: %+v", r)
		}
		if !w.empty() {
			t.Errorf("left behind: %d waiters, %d aggregates", w.count, len(w.entries))
		}
	})
}

// A version that was applied between the reader's own look and its wait causes no further
// notification.
func TestWaitLooksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		c.set("a", 5, nil)
		if r := <-w.begin(t.Context(), at("v", "a", 5)); !r.reached || r.took != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestWaitForSeveral(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 2, true)
		both, one := w.begin(t.Context(), at("v", "a", 2), at("v", "b", 3)), w.begin(t.Context(), at("v", "b", 9))
		synctest.Wait()
		for _, step := range []struct {
			id      string
			version int64
			ends    int
		}{{"b", 3, 0}, {"a", 1, 0}, {"a", 7, 1}} {
			c.set(step.id, step.version, nil)
			w.Notify(t.Context(), at("v", step.id, 0))
			synctest.Wait()
			if len(both) != step.ends || len(one) != 0 {
				t.Errorf("with %+v: %d and %d waits have ended", step, len(both), len(one))
			}
		}
		if r := <-both; !r.reached {
			t.Errorf("%+v", r)
		}
		c.set("b", 9, nil)
		w.Notify(t.Context(), at("v", "b", 0))
		if r := <-one; !r.reached || !w.empty() {
			t.Errorf("%+v; empty: %t", r, w.empty())
		}
	})
}

// Polling finds commits without a notification: rarely while LISTEN works, soon while it
// does not. It is one read for any number of readers.
func TestPollingIsTheFallback(t *testing.T) {
	t.Parallel()
	for connected, limit := range map[bool]time.Duration{true: 2 * time.Second, false: 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w, c := watched(t, 100, connected)
			var ended []<-chan result
			for range 100 {
				ended = append(ended, w.begin(t.Context(), at("v", "a", 1)))
			}
			synctest.Wait()
			c.set("a", 1, nil)
			looks := c.looked()
			for _, e := range ended {
				if r := <-e; !r.reached || r.took == 0 || r.took > limit {
					t.Errorf("connected %t: %+v; want within %s", connected, r, limit)
				}
			}
			if n := c.looked() - looks; n != 1 {
				t.Errorf("%d looks for 100 readers of one aggregate", n)
			}
		})
	}
}

// A failed read is tried again after its own pause, and does not wait for the next poll.
func TestAFailedReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		c.set("a", 1, errors.New("away"))
		ended := w.begin(t.Context(), at("v", "a", 1))
		synctest.Wait()
		c.set("a", 1, nil)
		if r := <-ended; !r.reached || r.took > retry.Base {
			t.Errorf("%+v; want within %s", r, retry.Base)
		}
	})
}

// slowTogether takes long for a read of several aggregates.
type slowTogether struct {
	readModel

	together int // the reads of several aggregates
}

func (s *slowTogether) Positions(ctx context.Context, aggregates []Position) ([]Position, error) {
	if len(aggregates) > 1 {
		s.together++
		backoff.Sleep(ctx, 100*time.Millisecond, nil)
	}
	return s.readModel.Positions(ctx, aggregates)
}

// Short reads of single aggregates do not make the slow reads of all aggregates more frequent.
func TestShortReadsDoNotSpeedUpThePolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowTogether{}
		w := NewWaiters(2, s, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
		for _, id := range []string{"a", "b"} {
			w.begin(t.Context(), at("v", id, 1))
			synctest.Wait()
		}
		go w.watch(t.Context(), slog.New(slog.DiscardHandler), func() bool { return false }, func() {})
		backoff.Sleep(t.Context(), 120*time.Millisecond, nil) // the first read has ended
		if s.together != 1 {
			t.Fatalf("%d reads", s.together)
		}
		for range 2 {
			w.Notify(t.Context(), at("v", "a", 0))
			backoff.Sleep(t.Context(), 60*time.Millisecond, nil)
		}
		if s.together != 1 {
			t.Errorf("%d reads of all aggregates; want the next after %s", s.together, pace(false, 25*time.Millisecond))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, false)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if r := <-w.begin(ctx, at("v", "a", 1<<62)); r.reached || r.err != nil || r.took != 10*time.Second {
			t.Errorf("%+v; want false without an error", r)
		}
		if n := c.looked(); n > 10*20+2 {
			t.Errorf("looked %d times in ten seconds: a busy loop", n)
		}
		if !w.empty() {
			t.Error("a waiter is left behind")
		}
		looks := c.looked()
		backoff.Sleep(t.Context(), time.Minute, nil)
		if c.looked() != looks {
			t.Error("looks without a waiter")
		}
	})
}

func TestLooksThatFailAreRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, c := watched(t, 1, true)
		c.set("a", 1, errors.New("database is away"))
		ended := w.begin(t.Context(), at("v", "a", 1))
		backoff.Sleep(t.Context(), 20*time.Second, nil)
		if n := c.looked(); len(ended) != 0 || n < 4 || n > 100 {
			t.Errorf("%d waits have ended after %d looks that failed", len(ended), n)
		}
		c.set("a", 1, nil)
		if r := <-ended; !r.reached {
			t.Errorf("%+v", r)
		}
	})
}

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, _ := watched(t, 2, true)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := w.begin(ctx, at("v", "a", 1)), w.begin(t.Context(), at("v", "a", 1))
		synctest.Wait()
		if _, err := w.Wait(t.Context(), at("v", "b", 1)); !errors.Is(err, ErrTooManyWaiters) {
			t.Errorf("third waiter of two: %v, want ErrTooManyWaiters", err)
		}
		cancel() // the first client hangs up
		<-first
		third := w.begin(t.Context(), at("v", "b", 1))
		synctest.Wait()
		if len(third) != 0 {
			t.Errorf("after one has left: %+v", <-third)
		}
		w.Drain()
		for _, e := range []<-chan result{second, third, w.begin(t.Context(), at("v", "c", 1))} {
			if r := <-e; r.reached || r.err != nil || r.took != 0 {
				t.Errorf("drained: %+v", r)
			}
		}
		if !w.empty() {
			t.Error("a waiter is left behind")
		}
	})
}

// A reader may wait for 32 aggregates, and 10,000 of them make no look that the
// database cannot answer.
func TestALookIsBounded(t *testing.T) {
	t.Parallel()
	c := &readModel{versions: map[string]int64{}}
	w := NewWaiters(1, c, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	due := make([]Position, 2*maxRead+1)
	if err := w.readPositions(t.Context(), due); err != nil || c.looked() != 3 || len(c.looks[0]) != maxRead || len(c.looks[2]) != 1 {
		t.Errorf("%d looks (%v), want 3 at most of %d each", c.looked(), err, maxRead)
	}
	c.fault = errors.New("away")
	if err := w.readPositions(t.Context(), due); !errors.Is(err, c.fault) || c.looked() != 4 {
		t.Errorf("%v after %d looks, want the first one's fault", err, c.looked())
	}
}

// Waiting lists are bounded by their memory: a forged token that names many aggregates
// takes the places of many readers.
func TestWaitersAreBoundedByMemory(t *testing.T) {
	w := NewWaiters(10_000, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	admitted, refused := 0, 0
	for range 10_000 {
		var wanted []Position
		for range MaxPositions {
			wanted = append(wanted, Position{AggregateType: "engagement", AggregateID: uuid.NewString() + ":" + uuid.NewString(), Epoch: 1, Version: 1 << 60})
		}
		switch _, err := w.add(wanted); {
		case err == nil:
			admitted++
		case errors.Is(err, ErrTooManyWaiters):
			refused++
		default:
			t.Fatal(err)
		}
	}
	held := used() - before
	t.Logf("%d lists wait and hold %d KiB", admitted, held>>10)
	if held > maxBytes || admitted < 100 || refused == 0 {
		t.Errorf("%d lists wait and hold %d KiB, %d are refused", admitted, held>>10, refused)
	}
	runtime.KeepAlive(w)
}

// What a wait has taken comes back, however it ends.
func TestMemoryOfWaitersComesBack(t *testing.T) {
	t.Parallel()
	w := NewWaiters(10, nil, notify.New(nil, "", "test", slog.New(slog.DiscardHandler)))
	wanted := []Position{{"video", "a", 1, 1}, {"video", "b", 1, 1}}
	first, err := w.add(wanted)
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.add(wanted)
	if err != nil || w.bytes == 0 {
		t.Fatalf("%d bytes, %v", w.bytes, err)
	}
	w.remove(first)
	w.reached(wanted)
	w.remove(second)
	if w.bytes != 0 || w.count != 0 {
		t.Errorf("%d bytes and %d places are taken without a waiter", w.bytes, w.count)
	}
}
