package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// Handover passes the event of one transaction to the relay of the same process. The relay publishes
// the event straight after the commit, without a claim that finds the event in the table. For this
// the event is written with the relay's lease, so that no other relay publishes it. Other libraries
// call this immediate dispatch.
//
// A handover is only a shortcut. If the relay cannot take the event, Append writes the event
// without a lease, and the relays find it as usual. If the caller does not call Committed after a
// commit, or if the process dies, the relays find the event when its lease has run out, 20 s after
// Append. A rollback after Append costs the relay a scan for such an event.
//
// The relay publishes the event as it was passed to Append, and does not look into the table. So the
// transaction must commit with synchronous_commit on, and must not undo the event by a rollback to a
// savepoint.
//
// A Handover serves one transaction, and is not safe for concurrent use. All methods of a nil
// Handover are valid, and hand over nothing.
type Handover struct {
	relay *Relay
	// The other fields are set by Append. low is a snapshot that did not see the event. leaseUntil
	// is as in leasedBatch. size is the size of the payload. others says that the transaction has
	// events without a lease.
	event      eventing.Event
	low        queue.TxSnapshot
	leaseUntil time.Time
	size       int
	others     bool
}

// Handover returns the handover of a transaction that is about to begin. A nil Relay returns nil.
func (r *Relay) Handover() *Handover {
	if r == nil {
		return nil
	}
	return &Handover{relay: r}
}

// Append does the same as the function [Append], and leases the event for the handover. It leases
// nothing if there is not exactly one event, if an earlier event of the aggregate is not published
// yet, or if the relay is not ready for the event. The relay is not ready if it does not run, if it
// has thousands of events in flight, or if the event's topic is paused or its tenant is held.
func (h *Handover) Append(ctx context.Context, tx pgx.Tx, with *pgx.Batch, events ...eventing.Event) error {
	if h == nil {
		return Append(ctx, tx, with, events...)
	}
	if len(events) != 1 || check(events[0]) != nil || !h.relay.open(h, events[0]) {
		h.others = true
		return Append(ctx, tx, with, events...) // which returns the error of check
	}
	if with == nil {
		with = &pgx.Batch{}
	}
	e := created(ctx, events)[0]
	h.event = asRead(e)
	leased := false
	insertLeased(with, e, h.relay.token, &leased)
	err := tx.SendBatch(ctx, with).Close()
	if err == nil && !leased || isRolledBack(err) {
		h.relay.inFlight.forget(h)
	}
	if err != nil {
		return fmt.Errorf("append event: %w", named(err))
	}
	return nil
}

// Committed tells the relay that the transaction has committed, and reports whether the relay
// publishes all events of the transaction without a claim. If it returns false, the caller calls
// [Relay.Wake]. A caller whose transaction was rolled back, or that has no answer to COMMIT, does not
// call Committed.
func (h *Handover) Committed() bool { return h != nil && h.relay.accept(h) && !h.others }

// isRolledBack reports whether err is an error after which the transaction cannot commit. If the
// database has ended the session, a COMMIT in the same batch may have succeeded: it may have waited
// for a standby. If there was no answer, it may have succeeded, too.
func isRolledBack(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR"
}

// asRead returns e as a claim would read it from the table. So the message is the same, whoever
// publishes the event.
func asRead(e eventing.Event) eventing.Event {
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	e.Payload, e.SourceEventID = notNull(e.Payload), uuid.Nil
	return e
}

// open notes that a transaction is about to write an event with this relay's lease, and reports
// whether it may.
func (r *Relay) open(h *Handover, e eventing.Event) bool {
	now := time.Now()
	p, tenant := r.pauses[e.AggregateType], e.Tenant()
	if p == nil || p.paused() || !h.leaseUntil.IsZero() {
		return false
	}
	if r.tenants.shared(now) && r.inFlight.roomOfAll() <= 0 {
		return false
	}
	h.leaseUntil, h.size = now.Add(queue.LeaseTime), len(e.Payload)
	return r.followUps.open(h, tenant, r.inFlight)
}

// open adds a handover to those that are open, unless the relay does not run, the event's tenant is
// held, or there is no room. A heartbeat computes the relay's low under the same lock. So that low
// is not later than the handover's low if it does not include the handover.
func (a *followUps) open(h *Handover, tenant string, f *inFlight) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.low = a.seen
	return a.seen != "" && a.heldTenant(tenant) == nil && f.open(h)
}

// open expects the lock of followUps. An open handover counts as an event in flight. Two claims
// have room in any case.
func (f *inFlight) open(h *Handover) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handedTo == nil || f.events >= claimEvents || f.bytes >= claimBytes ||
		f.events+f.reserved*claimEvents >= maxEvents || f.bytes+f.reserved*claimBytes >= maxBytes {
		return false
	}
	f.handovers[h] = struct{}{}
	f.events, f.bytes = f.events+1, f.bytes+h.size
	return true
}

// forget removes a handover, if it is open.
func (f *inFlight) forget(h *Handover) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.close(h)
	f.signalRoom()
}

// close expects the lock. It reports whether the handover was open.
func (f *inFlight) close(h *Handover) bool {
	_, open := f.handovers[h]
	if open {
		delete(f.handovers, h)
		f.events, f.bytes = f.events-1, f.bytes-h.size
	}
	return open
}

// accept sends the committed event of a handover to the publishers. It returns false if the
// event's lease ends too soon, if the relay ends, or if the event has no lease. In the first two
// cases the handover stays open until the lease has run out.
func (r *Relay) accept(h *Handover) bool {
	b := queue.Batch{{Event: h.event}}
	if !r.inFlight.accept(h, b) {
		return false
	}
	r.holdBusy([]queue.Batch{b}, r.followUps.relays())
	return true
}

// accept makes a batch in flight of a handover. If a claim has found the event in the meantime, the
// event is in flight already. A publisher cannot keep accept waiting, because the channel has room for
// everything that may be in flight.
func (f *inFlight) accept(h *Handover, events queue.Batch) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.handedTo == nil || time.Now().Add(publishTimeout).After(h.leaseUntil) || !f.close(h) {
		return false
	}
	if f.batches[h.event.ID] != nil {
		return true
	}
	b := &leasedBatch{events: events, leaseUntil: h.leaseUntil, low: h.low, lowBehind: h.low}
	f.batches[h.event.ID] = b
	f.account(b, 1)
	f.handedTo <- b
	return true
}

// acceptHandovers passes handovers to the channel to from now on. If to is nil, the relay takes no
// more events.
func (f *inFlight) acceptHandovers(to chan<- *leasedBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handedTo = to
}

// expireHandovers schedules a scan for the events of the handovers whose leases have run out, and
// closes these handovers. Their transactions may have committed. A transaction that commits later is
// found by a claim, because its event has no valid lease by then.
func (a *followUps) expireHandovers(f *inFlight, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for h := range f.handovers {
		if h.leaseUntil.Before(now) {
			f.close(h)
			f.signalRoom()
			a.addScan(h.low, now)
			a.unknownLeasesUntil = now.Add(queue.LeaseTime + queue.Timeout)
			signal(a.wakeScans)
		}
	}
}
