package outbox

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// leasedBatch is a batch that this relay has claimed, or that a transaction has handed over to it, and
// that it has not settled yet.
type leasedBatch struct {
	events queue.Batch
	// candidate is true if the relay has claimed the batch as one of those from which it chooses probes.
	candidate bool
	// probe is the state of the topic's pause in which the batch was chosen as a probe, or 0 if
	// it is no probe.
	probe int
	// unresolved is the handover of a transaction that may have rolled back, or nil. Its event is not
	// sent, and is handed back.
	unresolved *Handover
	// leaseOver says that the lease of unresolved's event had ended before the relay made this batch.
	leaseOver bool
	// retry says that a claim of retries has found the batch.
	retry bool
	// answered is true once the broker has answered. The lock of inFlight guards answered and foundAgain.
	answered bool
	// foundAgain is true if another claim has found the batch while the batch was in flight.
	foundAgain bool
	// low is a low of the aggregate's pending events (see "Lows and lives" in doc.go). lowBehind is a
	// low of the pending events behind the batch. If the batch begins with a retry, both are the
	// snapshot of the claim, because the events that the claim saw need no scan. Relays find the retry
	// by its retry time, and Settle makes the event behind the retry a retry, too.
	low, lowBehind datedLow

	mu sync.Mutex
	// leaseUntil is when the lease ends by the relay's own clock. By the database's clock the lease
	// always ends later, because the relay measures the lease from before it sent the claim, with
	// its monotonic clock. So neither a slow answer nor a wrong clock makes leaseUntil too late. For
	// a handed over event see Handover.
	leaseUntil time.Time
}

// validFor reports whether the lease lasts for d from now.
func (b *leasedBatch) validFor(d time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(d).Before(b.leaseUntil)
}

func (b *leasedBatch) extend(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaseUntil = until
}

// renewed notes that a statement, which the relay sent at the time sent, has renewed the lease. It
// changes nothing if leaseUntil was over at that time. Another relay may have had the event in between,
// and an operator may have skipped it. So the batch is not sent any more.
func (b *leasedBatch) renewed(sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if sent.Before(b.leaseUntil) {
		b.leaseUntil = sent.Add(queue.LeaseTime)
	}
}

// inFlight is the set of batches that a relay has leased, and of handovers. It bounds the relay's
// memory. shares.go has its methods on the counts, room.go those on the room for claims, and
// handover.go and unresolved.go those on open handovers.
type inFlight struct {
	mu            sync.Mutex
	batches       map[uuid.UUID]*leasedBatch // by head
	events, bytes int
	reserved      int // claims on their way for which room is reserved
	candidates    int // batches from which probes are chosen; the counts events and bytes leave them out

	// leased is the number of events in flight of each tenant. shares.go uses leased, sending and retrying.
	leased map[string]int
	// sending is the number of events of each tenant that the broker has not answered yet. It leaves out
	// the events of retrying.
	sending map[string]int
	// retrying is the number of events of all tenants that claims of retries have found and that the broker
	// has not answered yet.
	retrying int

	handovers map[*Handover]struct{} // the open ones, see handover.go
	// handedTo is the channel to the publishers for the batches of handovers. It is nil unless the relay
	// runs.
	handedTo chan<- *leasedBatch
	ending   bool // the relay is about to end, and opens no more handovers
	// arrived has a signal if a batch has come in flight since watchBacklog last read the signal.
	arrived chan struct{}

	// served has the number of each claimant's latest grant of room. reserve numbers the grants.
	served  [claimants]int
	waiting [claimants]bool // claimants that were refused room and still wait for it
	// room has a channel for each claimant. A signal in it says that there may be room again.
	room [claimants]chan struct{}
}

func newInFlight() *inFlight {
	f := &inFlight{
		batches: map[uuid.UUID]*leasedBatch{}, leased: map[string]int{}, sending: map[string]int{}, handovers: map[*Handover]struct{}{},
		arrived: make(chan struct{}, 1),
	}
	for by := range f.room {
		f.room[by] = make(chan struct{}, 1)
	}
	return f
}

// has reports whether a batch in flight matches.
func (f *inFlight) has(matches func(queue.Batch) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		if matches(b.events) {
			return true
		}
	}
	return false
}

// total returns how many events are in flight, without those of open handovers.
func (f *inFlight) total() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events + f.candidates - len(f.handovers)
}

// add adds the batches of a claim and frees the room that was reserved for the claim. If the head
// of a batch is in flight already, add only marks the earlier batch, which stays with its
// publisher. A claim finds a head that is in flight if the lease ran out unnoticed, or if the
// earlier batch has been settled but not removed yet. Then the new lease is handed back: see
// settler.removeSettled.
func (f *inFlight) add(c claimResult) []*leasedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.signalRoom() // the claim may have taken less than its room
	if !c.candidates {
		f.reserved--
	}
	var added []*leasedBatch
	seen, full := datedLow{c.Seen, c.low.life}, c.full()
	for _, events := range c.Batches {
		if earlier := f.batches[events.Head()]; earlier != nil {
			earlier.foundAgain = true
			earlier.renewed(c.sent)
			continue
		}
		b := &leasedBatch{
			events: events, candidate: c.candidates, retry: c.retries, leaseUntil: c.sent.Add(queue.LeaseTime),
			low: c.low, lowBehind: seen,
		}
		if low, followed := c.lows[aggregateKey{events[0].AggregateType, events[0].AggregateID}]; followed {
			b.low.snapshot = queue.Earliest(b.low.snapshot, low)
		}
		switch {
		case events[0].Retry:
			b.low = seen
		case full || len(events) >= c.claim.PerAggregate: // otherwise the batch has all events that the claim saw
			b.lowBehind = b.low
		}
		f.batches[events.Head()] = b
		f.account(b, 1)
		added = append(added, b)
	}
	return added
}

// remove removes a settled batch and returns true. The caller then signals the room. If a claim has
// found the batch again, remove returns false, and keeps the batch until the next call.
func (f *inFlight) remove(b *leasedBatch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.foundAgain {
		b.foundAgain = false
		return false
	}
	delete(f.batches, b.events.Head())
	f.account(b, -1)
	return true
}

// account expects the lock. It adds a batch to the totals if sign is 1, and subtracts the batch if
// sign is -1.
func (f *inFlight) account(b *leasedBatch, sign int) {
	if sign > 0 {
		signal(f.arrived)
	}
	if b.candidate {
		f.candidates += sign
		return
	}
	f.events += sign * len(b.events)
	f.bytes += sign * b.events.Bytes()
	tenant := b.events.Tenant()
	if f.leased[tenant] += sign * len(b.events); f.leased[tenant] == 0 {
		delete(f.leased, tenant)
	}
	if !b.answered {
		f.accountSending(b, sign)
	}
}

// low returns a snapshot that saw none of the events in flight, and none of the events of open
// handovers.
func (f *inFlight) low(met meeting) (low queue.TxSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.batches {
		low = queue.Earliest(low, met.low(b.low))
	}
	for h := range f.handovers {
		low = queue.Earliest(low, met.low(h.low))
	}
	return low
}

// dueForRenewal returns the batches whose leases are due for renewal, by head.
func (f *inFlight) dueForRenewal() map[uuid.UUID]*leasedBatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := map[uuid.UUID]*leasedBatch{}
	for head, b := range f.batches {
		if b.unresolved == nil && !b.validFor(queue.LeaseTime-renewEvery) {
			due[head] = b
		}
	}
	return due
}

// signal leaves one signal in c for its reader. If c has a signal already, signal does nothing.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
