package outbox

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// acceptHandovers passes handovers to the channel to from now on. The channel has room for all events
// that may be in flight, so no send to it waits.
func (f *inFlight) acceptHandovers(to chan<- *leasedBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handedTo = to
}

// refuseHandovers opens no more handovers, because the relay is about to end.
func (f *inFlight) refuseHandovers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
}

// endHandovers sends nothing more to the channel. It hands back the events of the open handovers, whose
// transactions may have committed.
func (f *inFlight) endHandovers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handovers {
		f.tryHandBack(h)
	}
	f.handedTo = nil
}

// open expects the lock of followUps. An open handover counts as an event in flight. Handovers leave
// room for two claims.
func (f *inFlight) open(h *Handover) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handedTo == nil || f.ending || f.events >= claimEvents || f.bytes >= claimBytes || f.events+f.reserved*claimEvents >= maxEvents {
		return false
	}
	f.handovers[h] = struct{}{}
	f.events, f.bytes = f.events+1, f.bytes+h.size
	return true
}

func (f *inFlight) isOpen(h *Handover) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, open := f.handovers[h]
	return open
}

// forget removes a handover, if it is open.
func (f *inFlight) forget(h *Handover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.close(h)
}

// close expects the lock. It reports whether the handover was open.
func (f *inFlight) close(h *Handover) bool {
	_, open := f.handovers[h]
	if open {
		delete(f.handovers, h)
		f.events, f.bytes = f.events-1, f.bytes-h.size
		f.signalRoom()
	}
	return open
}

// accept makes b a batch in flight, and sends it to the publishers. b is the batch of a handover whose
// transaction has committed. accept returns false if the handover is closed, if the relay ends, or while
// the relay looks for the event. While the relay ends, the publishers may hand the batch back. If a claim has
// found the event in the meantime, the event is in flight already.
func (f *inFlight) accept(h *Handover, b *leasedBatch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if earlier := f.batches[h.event.ID]; earlier != nil && earlier.unresolved != nil {
		return false
	}
	if f.handedTo == nil || !f.close(h) {
		return false
	}
	b.low, b.lowBehind = h.low, h.low
	f.send(b)
	return !f.ending
}

// send expects the lock.
func (f *inFlight) send(b *leasedBatch) {
	if f.batches[b.events.Head()] == nil {
		f.batches[b.events.Head()] = b
		f.account(b, 1)
		f.handedTo <- b
	}
}

// handBack hands the event of an open handover back, so that a scan can claim it: no request is sent,
// and the lease is taken from the event, if the event is there. Otherwise the handover stays open,
// because its transaction may commit later.
func (f *inFlight) handBack(h *Handover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tryHandBack(h)
}

// tryHandBack expects the lock. It does nothing if there is no room for a batch.
func (f *inFlight) tryHandBack(h *Handover) {
	if _, open := f.handovers[h]; !open || f.handedTo == nil ||
		f.events+f.reserved*claimEvents >= maxEvents || f.bytes+h.size+f.reserved*claimBytes > maxBytes {
		return
	}
	f.send(&leasedBatch{
		events: queue.Batch{{Event: h.event}}, low: h.low, lowBehind: h.low,
		leaseUntil: h.leaseUntil(), unresolved: h, leaseOver: h.leaseOver,
	})
}

// expireHandovers hands the events back whose leases are over. If an event is not there, its
// handover is closed.
func (f *inFlight) expireHandovers(now time.Time, clock queue.Clock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handovers {
		if h.leaseOver = h.leaseOver || h.isOver(now, clock); h.leaseOver {
			f.tryHandBack(h)
		}
	}
}

// isMissing reports whether the event of a handover was not there. lost are the heads that do not have
// the lease. Such an event is not in the table, unless an earlier statement with an unknown result has
// already taken its lease.
func (u *unsettled) isMissing(lost []uuid.UUID) bool {
	return u.batch.unresolved != nil && !u.batch.unresolved.leaseUncertain && slices.Contains(lost, u.batch.events.Head())
}

// closeResolved closes the handovers whose events were there, and no longer have the lease. A scan for these
// events is scheduled. It also closes the handovers whose leases were over before. If such an event
// is not there, its transaction has rolled back, or a claim will find it. If a claim has found it, the relay scans for
// it all the same, as for a batch whose lease was lost: the relay that has claimed it may have no low in the table.
func (s *settler) closeResolved(written []*unsettled, done queue.Settled) {
	for _, u := range written {
		h := u.batch.unresolved
		if h == nil {
			continue
		}
		if u.batch.leaseOver && slices.Contains(done.Elsewhere, h.event.ID) {
			s.followUps.scanFor(u.batch, time.Now())
		}
		if u.batch.leaseOver || !slices.Contains(done.Lost, h.event.ID) {
			s.inFlight.forget(h)
		}
	}
}
