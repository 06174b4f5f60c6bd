package outbox

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// acceptHandovers makes open accept handovers from now on. Their batches go to the channel in the
// parameter to. The channel has room for all events that may be in flight, so no send to it waits.
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

// endHandovers hands back the events of the open handovers, whose transactions may have committed.
// After that, nothing more is sent to the channel.
func (f *inFlight) endHandovers() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handovers {
		f.tryHandBack(h)
	}
	f.handedTo = nil
}

// open adds h to the open handovers and returns true. It returns false if the relay does not run, is
// about to end, or has no room. An open handover counts as an event in flight. Handovers leave room for
// two claims. open expects the lock of followUps.
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

// close removes h from the open handovers, and reports whether h was open. It expects the lock.
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
// transaction has committed. If a claim has found the event in the meantime, the event is in flight
// already, and accept sends nothing. accept returns false if the handover is closed, or while the relay
// looks for its event. It also returns false if the relay is about to end. Then the publishers may
// hand the batch back.
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

// send makes b a batch in flight, and sends it to the publishers. It does nothing if the event is in
// flight already. It expects the lock.
func (f *inFlight) send(b *leasedBatch) {
	if f.batches[b.events.Head()] == nil {
		f.batches[b.events.Head()] = b
		f.account(b, 1)
		f.handedTo <- b
	}
}

// handBack looks for the event of an open handover, and hands the event back if it is in the table: the
// settler takes the lease from the event, so that a scan can claim it. No publisher sends the event. If
// the event is not in the table, the handover stays open, because its transaction may commit later.
func (f *inFlight) handBack(h *Handover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tryHandBack(h)
}

// tryHandBack does the work of handBack, and expects the lock. It does nothing if there is no room for
// a batch.
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

// expireHandovers looks a last time for the events of the handovers whose leases are over, and hands
// them back. If such an event is not in the table, the settler closes the handover (see closeResolved).
func (f *inFlight) expireHandovers(now time.Time, clock queue.Clock) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handovers {
		if h.leaseOver = h.leaseOver || h.isOver(now, clock); h.leaseOver {
			f.tryHandBack(h)
		}
	}
}

// isMissing reports whether u is the search for the event of a handover, and the event is not in the
// table. lost are the heads that do not have the lease. A lost event is not in the table, unless an
// earlier statement with an unknown result may have taken its lease. In that case isMissing returns
// false.
func (u *unsettled) isMissing(lost []uuid.UUID) bool {
	return u.batch.unresolved != nil && !u.batch.unresolved.leaseUncertain && slices.Contains(lost, u.batch.events.Head())
}

// closeResolved closes each handover whose event was in the table, because Settle has taken the lease
// from it. followUps.settled has scheduled a scan for the event. closeResolved also closes each
// handover whose lease was over before Settle looked for the event. If such an event is not in the
// table, its transaction has rolled back, or a claim finds the event after the commit. If another relay
// has claimed the event, this relay scans for it all the same, as for a batch whose lease was lost: the
// other relay may have no low in the table.
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
