package outbox

import (
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// handoverTime is the age at which an open handover is closed. By then its lease is over, and each
	// claim that began before the end of the lease has ended. Such a claim counts the lease as lasting,
	// because it compares the lease with the time at which the claim began, even if it sees an event
	// that was committed after the end of the lease.
	handoverTime = queue.LeaseTime + queue.ScanTimeout + time.Second
	// lookPause is the pause before a relay looks for the event of a transaction with an unknown
	// outcome. The database may still execute the COMMIT meanwhile. Each further pause is four times as
	// long. lookTries is how many times the relay looks, before it looks a last time when the handover
	// is closed.
	lookPause, lookTries = 400 * time.Millisecond, 3
)

// isRolledBack reports whether the transaction has failed so that it cannot commit any more. After other
// errors it may have committed: the answer to COMMIT may be lost, or a callback of the caller may have
// failed although the statements succeeded.
func isRolledBack(tx pgx.Tx, err error) bool {
	if err == nil || errors.Is(err, pgx.ErrTxClosed) { // another transaction may use the connection already
		return false
	}
	const failed = 'E'
	conn := tx.Conn()
	return conn != nil && conn.PgConn().TxStatus() == failed
}

// Failed tells the relay that the transaction has ended with an error. It may have committed
// nevertheless, because the answer to COMMIT may be lost. The relay looks for the event within half a
// second, twice more in the next seconds, and 33 s after Append. By then the lease and all claims that
// began before its end are over. If the transaction had events without a lease, the caller calls
// [Relay.Wake], too.
func (h *Handover) Failed() {
	if h != nil {
		h.lookFor(1)
	}
}

// lookFor looks for the event after a pause (see inFlight.handBack), until it has looked lookTries
// times or the handover is closed. try is the number of the next look, from 1.
func (h *Handover) lookFor(try int) {
	if try > lookTries || !h.relay.inFlight.isOpen(h) {
		return
	}
	time.AfterFunc(jittered(lookPause<<(2*(try-1))), func() {
		h.relay.inFlight.handBack(h)
		h.lookFor(try + 1)
	})
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

// isOver reports whether the lease of a handover is over, and each claim that began before the end of
// the lease has ended. From then on a claim finds the event if its transaction commits. clock must be a
// reading from after the end of the lease, as the clock of this process measures the lease. An earlier
// reading would not show that the database's clock was set back meanwhile. If it was set back, the
// lease lasts longer.
func (h *Handover) isOver(now time.Time, clock queue.Clock) bool {
	return now.Sub(h.opened) > handoverTime && clock.Answered.Sub(h.opened) > queue.LeaseTime &&
		clock.At(now).Sub(h.since) > handoverTime
}

// expireHandovers looks for the events of the handovers whose leases are over, a last time.
func (r *Relay) expireHandovers(now time.Time) {
	if clock := r.clock.Load(); clock != nil {
		r.inFlight.expireHandovers(now, *clock)
	}
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
