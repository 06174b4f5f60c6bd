package outbox

import (
	"slices"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// waits returns a landing of n published events of an aggregate, under a lease of left.
func waits(n int, left time.Duration) *unsettled {
	h := &hold{run: run(n, 1), until: time.Now().Add(left)}
	return &unsettled{landing: landing{h, report{published: n}}, outcome: queue.Outcome{Run: h.run, Published: n}}
}

func TestAStatementSettlesWhatIsDueAndFits(t *testing.T) {
	t.Parallel()
	later := waits(1, queue.LeaseTime)
	later.at = time.Now().Add(time.Hour)
	nothing := waits(3, queue.LeaseTime)
	nothing.outcome.Published = 0 // weighs as much as one
	s := &settler{most: 5, waiting: []*unsettled{
		waits(3, queue.LeaseTime), waits(4, queue.LeaseTime), later, nothing, waits(1, queue.LeaseTime), waits(9, queue.LeaseTime),
	}}
	for _, want := range [][]int{{3, 0, 1}, {4}, {5}, nil} {
		var got []int
		for _, u := range s.take() {
			got = append(got, u.outcome.Published)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("a statement has %v, want %v", got, want)
		}
	}
	if !slices.Equal(s.waiting, []*unsettled{later}) || s.idle() < queue.LeaseTime {
		t.Errorf("%d wait, for %v", len(s.waiting), s.idle())
	}
}

// TestWhatIsNotLeasedAnyMoreIsNotKept has a statement fail for two runs, of which one's
// lease is over.
func TestWhatIsNotLeasedAnyMoreIsNotKept(t *testing.T) {
	t.Parallel()
	r := newBench(t).newRelay(t)
	s := &settler{Relay: r, most: 5}
	over, good := waits(1, -time.Second), waits(1, queue.LeaseTime)
	for _, u := range []*unsettled{over, good} {
		r.flight.holds[u.hold.run.Head()] = u.hold
		r.flight.events++
	}
	s.again([]*unsettled{over, good})
	if !slices.Equal(s.waiting, []*unsettled{good}) || good.tries != 1 || r.flight.held() != 1 {
		t.Errorf("%d wait, %d are in flight", len(s.waiting), r.flight.held())
	}
}

// TestAQuickDatabaseIsAskedForMore has statements begin with one event.
func TestAQuickDatabaseIsAskedForMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *hold, 100)
	b.appendEach(t, "a", 50)
	b.claimAll(t, r, claimed)
	s := &settler{Relay: r, most: 1}
	for range 50 {
		h := <-claimed
		s.waiting = append(s.waiting, &unsettled{landing: landing{h, report{published: 1}}, outcome: queue.Outcome{Run: h.run, Published: 1}})
	}
	s.settleDue(t.Context(), t.Context(), nil)
	if s.most < 2 {
		t.Error("a statement still has one event, after all 50 were quick")
	}
	if n := b.count(t, unpublished); n != 0 || r.flight.held() != 0 {
		t.Errorf("%d are unpublished, %d in flight", n, r.flight.held())
	}
}
