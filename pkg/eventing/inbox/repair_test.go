package inbox

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing"
)

// A producer that leaves out versions costs its owner a call now and then, not one
// for each event.
func TestVersionHolesCostFewCalls(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var calls atomic.Int64
	c := b.consumer(t)
	c.handler.Repair = func(ctx context.Context, e eventing.Event) error {
		calls.Add(1)
		return b.repair(ctx, e)
	}
	began := time.Now()
	const events = 200
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { c.work(ctx) })
	for i := range int64(events) {
		b.setOwner("a", 2*i+1) // and no further: the next one is a gap again
		c.incoming <- delivered(event("a", 2*i+1))
		c.incoming <- delivered(event("other", i+1)) // is done behind it
		b.eventually(t, int(i)+1, version, "other")
	}
	b.eventually(t, 2*events, withDone)
	cancel()
	working.Wait()
	most := int64(time.Since(began)/repairEvery) + 2
	t.Logf("%d calls for %d events with a hole before each, in %v", calls.Load(), events, time.Since(began))
	if calls.Load() > most {
		t.Errorf("%d calls, want at most %d", calls.Load(), most)
	}
}

// What is remembered of repairs is forgotten.
func TestRecentRepairsAreForgotten(t *testing.T) {
	t.Parallel()
	var r recent
	r.note("a")
	if d := r.wait("a"); d < repairEvery/2 || r.wait("b") != 0 {
		t.Errorf("wait %v after a repair of just now, %v without one", d, r.wait("b"))
	}
	for range 2 {
		if r.wait("a") == 0 {
			t.Error("forgotten with the first generation")
		}
		r.turned = r.turned.Add(-3 * repairEvery)
		r.note("b")
	}
	if len(r.young)+len(r.old) > 2 || !r.young["a"].IsZero() || !r.old["a"].IsZero() {
		t.Errorf("remembered: %v, %v", r.young, r.old)
	}
}
