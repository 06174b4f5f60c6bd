package outbox

import (
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// leasedBatch is a batch that this relay has claimed and not settled yet.
type leasedBatch struct {
	events queue.Batch
	// probe is the state of the topic's pause that the batch probes, or 0. candidate says
	// that the batch was claimed to choose probes from.
	probe     int
	candidate bool
	// retry says that a claim of retries has found the batch. answered, of inFlight, says that the
	// broker has answered.
	retry, answered bool
	// low and lowBehind are snapshots from which another relay can scan. low saw no pending
	// event of the aggregate, lowBehind saw none behind the batch. A batch that begins with
	// a retry needs neither for the events that its claim saw: the retry is found by its
	// retry time, and Settle makes the event behind it a retry, too.
	low, lowBehind queue.TxSnapshot

	mu sync.Mutex
	// leaseUntil is the relay's own time for the end of the lease. It is always earlier
	// than the database's, because it counts on the monotonic clock from before the claim
	// was sent. So neither a slow answer nor a wrong clock makes it late.
	leaseUntil time.Time
}

// validFor reports whether the lease lasts for d from now.
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

// claimant is one of the goroutines that share the room for claims.
type claimant int

const (
	byClaim claimant = iota
	byScan
	byTurn
	claimants
)

// inFlight is the set of batches that a relay has leased. It bounds the relay's memory.
type inFlight struct {
	mu            sync.Mutex
	batches       map[uuid.UUID]*leasedBatch // by head
	events, bytes int
	reserved      int // claims on their way
	candidates    int // batches besides, to choose probes from
	// leased are the events of each tenant, and sending those that the broker has not answered yet.
	// Those of all tenants that claims of retries have found count apart, as retrying.
	leased   map[string]int
	sending  map[string]int
	retrying int
	// served numbers the grants of room: each claimant has the number of its latest one. waiting
	// has the claimants that were refused room.
	served  [claimants]int
	waiting [claimants]bool
	// There may be room again: one signal for each claimant.
	room [claimants]chan struct{}
}

func newInFlight() *inFlight {
	f := &inFlight{batches: map[uuid.UUID]*leasedBatch{}, leased: map[string]int{}, sending: map[string]int{}}
	for by := range f.room {
		f.room[by] = make(chan struct{}, 1)
	}
	return f
}

// reserve keeps room for one more claim until add or release, and reports whether there was
// room. Of the claimants that wait for room, the one that has not had it for longest comes
// first.
func (f *inFlight) reserve(by claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	claims := f.reserved + 1
	if f.events+claims*claimEvents > maxEvents || f.bytes+claims*claimBytes > maxBytes || f.isAnothersTurn(by) {
		f.waiting[by] = true
		return false
	}
	f.reserved, f.served[by], f.waiting[by] = claims, slices.Max(f.served[:])+1, false
	return true
}

// withdraw notes that a claimant has something else to do than to wait for room: no other one waits for
// it from now on.
func (f *inFlight) withdraw(by claimant) {
	f.mu.Lock()
	waited := f.waiting[by]
	f.waiting[by] = false
	f.mu.Unlock()
	if waited {
		f.signalRoom()
	}
}

// isAnothersTurn expects the lock.
func (f *inFlight) isAnothersTurn(by claimant) bool {
	for other, waits := range f.waiting {
		if waits && f.served[other] < f.served[by] {
			return true
		}
	}
	return false
}

// release gives back the room of a claim that took nothing.
func (f *inFlight) release() {
	f.mu.Lock()
	f.reserved--
	f.mu.Unlock()
	f.signalRoom()
}

func (f *inFlight) signalRoom() {
	for _, c := range f.room {
		signal(c)
	}
}

// hasRoomForProbes reports whether there is room for the candidates of another probe. Only
// one goroutine asks, so nothing is reserved.
func (f *inFlight) hasRoomForProbes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.candidates+candidatesPerProbe <= maxCandidates
}

// has reports whether a batch is in flight that matches.
func (f *inFlight) has(matches func(queue.Batch) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.batches {
		if matches(h.events) {
			return true
		}
	}
	return false
}

// total is how many events are in flight.
func (f *inFlight) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events + f.candidates
}

// add takes in the batches of a claim, in place of the room reserved for them. It skips a
// batch that is in flight already, under a lease that ran out unnoticed: that batch keeps
// its publisher.
func (f *inFlight) add(c claimResult) []*leasedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.signalRoom() // a claim that took less than its room leaves some to the others
	if !c.candidates {
		f.reserved--
	}
	var added []*leasedBatch
	full := c.full()
	for _, b := range c.Batches {
		if f.batches[b.Head()] != nil {
			continue
		}
		h := &leasedBatch{
			events: b, candidate: c.candidates, retry: c.retries, leaseUntil: c.sent.Add(queue.LeaseTime), low: c.low, lowBehind: c.Seen,
		}
		if low, followed := c.lows[aggregateKey{b[0].AggregateType, b[0].AggregateID}]; followed {
			h.low = queue.Earliest(h.low, low)
		}
		switch {
		case b[0].Retry:
			h.low = c.Seen
		case full || len(b) >= c.claim.PerAggregate: // otherwise the batch has all visible events
			h.lowBehind = h.low
		}
		f.batches[b.Head()] = h
		f.account(h, 1)
		added = append(added, h)
	}
	return added
}

func (f *inFlight) remove(batches []*leasedBatch) {
	f.mu.Lock()
	for _, h := range batches {
		delete(f.batches, h.events.Head())
		f.account(h, -1)
	}
	f.mu.Unlock()
	f.signalRoom()
}

// account expects the lock. It adds a batch to the bounded totals, or takes it away.
func (f *inFlight) account(h *leasedBatch, sign int) {
	if h.candidate {
		f.candidates += sign
		return
	}
	f.events += sign * len(h.events)
	f.bytes += sign * h.events.Bytes()
	tenant := h.events.Tenant()
	if f.leased[tenant] += sign * len(h.events); f.leased[tenant] == 0 {
		delete(f.leased, tenant)
	}
	if !h.answered {
		f.accountSending(h, sign)
	}
}

// low is a snapshot that saw none of the events in flight.
func (f *inFlight) low() (low queue.TxSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.batches {
		low = queue.Earliest(low, h.low)
	}
	return low
}

// dueForRenewal returns the batches whose leases are due for renewal, by head.
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

// signal leaves one signal in c for its reader. A second one would say nothing more.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
