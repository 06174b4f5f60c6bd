package outbox

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// hold is a run that this relay has claimed and not yet settled.
type hold struct {
	run queue.Run
	// probe is set for the one run that tries a topic that is out.
	probe bool

	mu sync.Mutex
	// until is the holder's own idea of how long the lease lasts, always earlier
	// than the database's: it counts on the monotonic clock from before the claim
	// was sent, so that neither a slow answer nor a wrong clock makes it late.
	until time.Time
}

// outlasts reports whether the lease is good for d from now.
func (h *hold) outlasts(d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(d).Before(h.until)
}

func (h *hold) extend(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}

// flight is all that a relay holds. It bounds its memory.
type flight struct {
	mu            sync.Mutex
	holds         map[uuid.UUID]*hold // by head
	events, bytes int
	landed        chan struct{} // told after each settlement
}

func newFlight() *flight {
	return &flight{holds: map[uuid.UUID]*hold{}, landed: make(chan struct{}, 1)}
}

// room reports whether another claim may be made.
func (f *flight) room() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events <= maxEvents-claimEvents && f.bytes <= maxBytes-claimBytes
}

// held is how many events are in flight.
func (f *flight) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events
}

// add takes in claimed runs. One that is held already, under a lease that ran
// out unnoticed, is left to its holder.
func (f *flight) add(runs []queue.Run, claimed time.Time) []*hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	var added []*hold
	for _, r := range runs {
		if f.holds[r.Head()] != nil {
			continue
		}
		h := &hold{run: r, until: claimed.Add(queue.LeaseTime)}
		f.holds[r.Head()] = h
		f.events += len(r)
		f.bytes += r.Bytes()
		added = append(added, h)
	}
	return added
}

func (f *flight) remove(holds []*hold) {
	f.mu.Lock()
	for _, h := range holds {
		delete(f.holds, h.run.Head())
		f.events -= len(h.run)
		f.bytes -= h.run.Bytes()
	}
	f.mu.Unlock()
	signal(f.landed)
}

// ageing returns the holds whose leases are due for renewal, by head.
func (f *flight) ageing() map[uuid.UUID]*hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := map[uuid.UUID]*hold{}
	for id, h := range f.holds {
		if !h.outlasts(queue.LeaseTime - renewEvery) {
			due[id] = h
		}
	}
	return due
}

// signal leaves word for whoever reads c next. Once is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
