package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// hold is a run that this relay has claimed and not yet settled.
type leasedBatch struct {
	events queue.Batch
	// probe is the state of the circuit that the run is a probe in, or 0. candidate says
	// that it was taken to choose probes from.
	probe     int
	candidate bool
	// low saw no pending event of the aggregate, and next none behind the run: from
	// there on another relay finds them. A retry is found as such, and so is what was
	// behind it when it was claimed: settling makes that a retry, too.
	low, lowBehind queue.TxSnapshot

	mu sync.Mutex
	// until is the holder's own idea of how long the lease lasts, always earlier
	// than the database's: it counts on the monotonic clock from before the claim
	// was sent, so that neither a slow answer nor a wrong clock makes it late.
	leaseUntil time.Time
}

// outlasts reports whether the lease is good for d from now.
func (h *leasedBatch) validFor(d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(d).Before(h.leaseUntil)
}

func (h *leasedBatch) extend(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaseUntil = until
}

// claimant is one of the two goroutines that claim.
type claimant int

const (
	byClaim claimant = iota
	byScan
)

// flight is all that a relay holds. It bounds its memory.
type inFlight struct {
	mu            sync.Mutex
	batches       map[uuid.UUID]*leasedBatch // by head
	events, bytes int
	reserved      int // claims on their way
	candidates    int // runs beside them, which probes are chosen from
	// last is the claimant that had room last, and waits has those that were refused
	// it: the other's turn comes first.
	lastServed claimant
	waiting    [2]bool
	// width is how many aggregates are likely to fill a claim.
	aggregatesPerClaim int
	// landed and landedScan are told when there may be room, one for each claimant.
	roomForClaims, roomForScans chan struct{}
}

func newInFlight() *inFlight {
	return &inFlight{
		batches: map[uuid.UUID]*leasedBatch{}, aggregatesPerClaim: maxAggregates / 5,
		roomForClaims: make(chan struct{}, 1), roomForScans: make(chan struct{}, 1),
	}
}

// reserve reports whether who may make another claim, and if so keeps the room for
// it until add or release.
func (f *inFlight) reserve(by claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	claims := f.reserved + 1
	if f.events+claims*claimEvents > maxEvents || f.bytes+claims*claimBytes > maxBytes || f.waiting[1-by] && f.lastServed == by {
		f.waiting[by] = true
		return false
	}
	f.reserved, f.lastServed, f.waiting[by] = claims, by, false
	return true
}

// release gives back what was reserved for a claim that took nothing.
func (f *inFlight) release() {
	f.mu.Lock()
	f.reserved--
	f.mu.Unlock()
	f.signalRoom()
}

func (f *inFlight) signalRoom() {
	signal(f.roomForClaims)
	signal(f.roomForScans)
}

// hasRoomForProbes reports whether there is room for the candidates of another one. Only
// one goroutine asks, so nothing is reserved.
func (f *inFlight) hasRoomForProbes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.candidates+candidatesPerProbe <= maxCandidates
}

// has reports whether a run of one of these types is in flight.
func (f *inFlight) hasTypes(types []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.batches {
		if slices.Contains(types, h.events[0].AggregateType) {
			return true
		}
	}
	return false
}

// held is how many events are in flight.
func (f *inFlight) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events + f.candidates
}

// learn takes from a claim how many aggregates make one.
func (f *inFlight) observe(runs []queue.Batch) {
	n := 0
	for _, r := range runs {
		n += len(r)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 {
		f.aggregatesPerClaim = max(minAggregates, min(maxAggregates, claimEvents*len(runs)/n))
	}
}

func (f *inFlight) aggregateLimit() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.aggregatesPerClaim
}

// add takes in the runs of a claim, in the place of the room reserved for them. A run that
// is held already, under a lease that ran out unnoticed, is left to its holder.
func (f *inFlight) add(c claimResult) []*leasedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.signalRoom() // a claim that took less than its room leaves the other one some
	if !c.candidates {
		f.reserved--
	}
	var added []*leasedBatch
	full := c.full()
	for _, r := range c.Batches {
		if f.batches[r.Head()] != nil {
			continue
		}
		h := &leasedBatch{events: r, candidate: c.candidates, leaseUntil: c.sent.Add(queue.LeaseTime), low: c.low, lowBehind: c.Seen}
		if low, followed := c.lows[aggregateKey{r[0].AggregateType, r[0].AggregateID}]; followed {
			h.low = queue.Earliest(h.low, low)
		}
		switch {
		case r[0].Retry:
			h.low = c.Seen
		case full || len(r) >= c.claim.PerAggregate: // else all that was visible is in the run
			h.lowBehind = h.low
		}
		f.batches[r.Head()] = h
		f.account(h, 1)
		added = append(added, h)
	}
	return added
}

func (f *inFlight) remove(holds []*leasedBatch) {
	f.mu.Lock()
	for _, h := range holds {
		delete(f.batches, h.events.Head())
		f.account(h, -1)
	}
	f.mu.Unlock()
	f.signalRoom()
}

// count expects the lock. It adds a hold to what is bounded, or takes it away.
func (f *inFlight) account(h *leasedBatch, sign int) {
	if h.candidate {
		f.candidates += sign
		return
	}
	f.events += sign * len(h.events)
	f.bytes += sign * h.events.Bytes()
}

// low is from where on events may be unfinished on account of the runs in flight.
func (f *inFlight) low() (low queue.TxSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.batches {
		low = queue.Earliest(low, h.low)
	}
	return low
}

// lows are those of a run in flight.
func (f *inFlight) lows(r queue.Batch) (low, next queue.TxSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.batches[r.Head()]; h != nil {
		return h.low, h.lowBehind
	}
	return queue.Beginning, queue.Beginning
}

// ageing returns the holds whose leases are due for renewal, by head.
func (f *inFlight) dueForRenewal() map[uuid.UUID]*leasedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := map[uuid.UUID]*leasedBatch{}
	for id, h := range f.batches {
		if !h.validFor(queue.LeaseTime - renewEvery) {
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
