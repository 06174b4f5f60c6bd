package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// hold is a run that this relay has claimed and not yet settled.
type hold struct {
	run queue.Run
	// probe is the state of the circuit that the run is a probe in, or 0. candidate says
	// that it was taken to choose probes from.
	probe     int
	candidate bool
	// low saw no pending event of the aggregate, and next none behind the run: from
	// there on another relay finds them. A retry is found as such, and so is what was
	// behind it when it was claimed: settling makes that a retry, too.
	low, next queue.Snapshot

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

// claimant is one of the two goroutines that claim.
type claimant int

const (
	byClaim claimant = iota
	byScan
)

// flight is all that a relay holds. It bounds its memory.
type flight struct {
	mu            sync.Mutex
	holds         map[uuid.UUID]*hold // by head
	events, bytes int
	reserved      int // claims on their way
	candidates    int // runs beside them, which probes are chosen from
	// last is the claimant that had room last, and waits has those that were refused
	// it: the other's turn comes first.
	last  claimant
	waits [2]bool
	// width is how many aggregates are likely to fill a claim.
	width int
	// landed and landedScan are told when there may be room, one for each claimant.
	landed, landedScan chan struct{}
}

func newFlight() *flight {
	return &flight{
		holds: map[uuid.UUID]*hold{}, width: maxAggregates / 5,
		landed: make(chan struct{}, 1), landedScan: make(chan struct{}, 1),
	}
}

// reserve reports whether who may make another claim, and if so keeps the room for
// it until add or release.
func (f *flight) reserve(who claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	claims := f.reserved + 1
	if f.events+claims*claimEvents > maxEvents || f.bytes+claims*claimBytes > maxBytes || f.waits[1-who] && f.last == who {
		f.waits[who] = true
		return false
	}
	f.reserved, f.last, f.waits[who] = claims, who, false
	return true
}

// release gives back what was reserved for a claim that took nothing.
func (f *flight) release() {
	f.mu.Lock()
	f.reserved--
	f.mu.Unlock()
	f.tell()
}

func (f *flight) tell() {
	signal(f.landed)
	signal(f.landedScan)
}

// hasRoomForProbes reports whether there is room for the candidates of another one. Only
// one goroutine asks, so nothing is reserved.
func (f *flight) hasRoomForProbes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.candidates+probeAmong <= maxCandidates
}

// has reports whether a run of one of these types is in flight.
func (f *flight) has(types []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.holds {
		if slices.Contains(types, h.run[0].AggregateType) {
			return true
		}
	}
	return false
}

// held is how many events are in flight.
func (f *flight) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events + f.candidates
}

// learn takes from a claim how many aggregates make one.
func (f *flight) learn(runs []queue.Run) {
	n := 0
	for _, r := range runs {
		n += len(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		f.width = max(minAggregates, min(maxAggregates, claimEvents*len(runs)/n))
	}
}

func (f *flight) aggregates() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.width
}

// add takes in the runs of a claim, in the place of the room reserved for them. A run that
// is held already, under a lease that ran out unnoticed, is left to its holder.
func (f *flight) add(b batch) []*hold {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.tell() // a claim that took less than its room leaves the other one some
	if !b.candidates {
		f.reserved--
	}
	var added []*hold
	full := b.full()
	for _, r := range b.Runs {
		if f.holds[r.Head()] != nil {
			continue
		}
		h := &hold{run: r, candidate: b.candidates, until: b.sent.Add(queue.LeaseTime), low: b.low, next: b.Seen}
		if low, followed := b.lows[subject{r[0].AggregateType, r[0].AggregateID}]; followed {
			h.low = queue.Earliest(h.low, low)
		}
		switch {
		case r[0].Retry:
			h.low = b.Seen
		case full || len(r) >= b.who.PerAggregate: // else all that was visible is in the run
			h.next = h.low
		}
		f.holds[r.Head()] = h
		f.count(h, 1)
		added = append(added, h)
	}
	return added
}

func (f *flight) remove(holds []*hold) {
	f.mu.Lock()
	for _, h := range holds {
		delete(f.holds, h.run.Head())
		f.count(h, -1)
	}
	f.mu.Unlock()
	f.tell()
}

// count expects the lock. It adds a hold to what is bounded, or takes it away.
func (f *flight) count(h *hold, sign int) {
	if h.candidate {
		f.candidates += sign
		return
	}
	f.events += sign * len(h.run)
	f.bytes += sign * h.run.Bytes()
}

// low is from where on events may be unfinished on account of the runs in flight.
func (f *flight) low() (low queue.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.holds {
		low = queue.Earliest(low, h.low)
	}
	return low
}

// lows are those of a run in flight.
func (f *flight) lows(r queue.Run) (low, next queue.Snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.holds[r.Head()]; h != nil {
		return h.low, h.next
	}
	return queue.Beginning, queue.Beginning
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
