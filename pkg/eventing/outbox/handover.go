package outbox

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// mostClockError is the largest error of the database's time with which a relay opens handovers.
	// A lease is shorter by that error.
	mostClockError = time.Second
	// handoverTime is the time after which an open handover is closed. By then its lease is over, even
	// if the database's clock was set back by a second in the meantime. If it was set back further,
	// the lease does not count.
	handoverTime = queue.LeaseTime + time.Second
	// doubtTime is how long a relay waits before it looks for the event of a transaction with an
	// unknown outcome. The database may still execute the COMMIT.
	doubtTime = 200 * time.Millisecond
)

// Handover passes the event of one transaction to the relay of the same process. The relay publishes
// the event straight after the commit, without a claim that finds the event in the table. For this
// the event is written with the relay's lease, so that no other relay publishes it. Other libraries
// call this immediate dispatch.
//
// A handover is only a shortcut. If the relay cannot take the event, Append writes the event
// without a lease, and the relays find it as usual. After the transaction the caller calls Committed
// or Failed. If the caller calls neither, or if the process dies, the relays find the event when its
// lease is over, 20 s after Append.
//
// The relay publishes the event as it was passed to Append, and does not look into the table. So the
// transaction must commit with synchronous_commit on, and must not undo the event by a rollback to a
// savepoint.
//
// A Handover serves one transaction, and is not safe for concurrent use. All methods of a nil
// Handover are valid, and hand over nothing.
type Handover struct {
	relay *Relay
	// The other fields are set by Append. low is a snapshot that did not see the event. opened is when
	// the handover was opened, and the lease begins at that time by the database's clock, or up to
	// clockError earlier. size is the size of the payload. others says that the transaction has
	// events without a lease.
	event      eventing.Event
	low        queue.TxSnapshot
	opened     time.Time
	clockError time.Duration
	size       int
	others     bool
	// uncounted says that the event no longer counts as in flight for the handover. The lock of
	// inFlight guards it.
	uncounted bool
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
	var since time.Time
	open := len(events) == 1 && check(events[0]) == nil
	if open {
		since, open = h.relay.open(h, events[0])
	}
	if !open {
		h.others = true
		return Append(ctx, tx, with, events...) // which returns the error of check
	}
	if with == nil {
		with = &pgx.Batch{}
	}
	e := created(ctx, events)[0]
	h.event = asRead(e)
	l := lease{token: h.relay.token, since: since}
	insertLeased(with, e, &l)
	err := tx.SendBatch(ctx, with).Close()
	if l.written && !l.taken || !l.written && !tx.Conn().IsClosed() {
		// The event has no lease, or was not written: the connection is in order, so the database has
		// answered all statements. Without an answer the event may be there.
		h.relay.inFlight.forget(h)
	}
	if err != nil {
		return fmt.Errorf("append event: %w", named(err))
	}
	return nil
}

// Committed tells the relay that the transaction has committed, and reports whether the relay
// publishes all events of the transaction without a claim. If it returns false, the caller calls
// [Relay.Wake].
func (h *Handover) Committed() bool { return h != nil && h.relay.accept(h) && !h.others }

// Failed tells the relay that the transaction has failed, and may have committed, because the
// answer to COMMIT was lost. The relay looks for the event soon, and again when the lease is over. If
// the transaction had events without a lease, the caller calls [Relay.Wake], too.
func (h *Handover) Failed() {
	if h != nil && h.relay.inFlight.isOpen(h) {
		time.AfterFunc(doubtTime, func() { h.relay.inFlight.handBack(h) })
	}
}

// asRead returns e as a claim would read it from the table. So the message is the same with and
// without a claim. The payload is a copy, because the caller may reuse its slice after Append.
func asRead(e eventing.Event) eventing.Event {
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	e.Payload, e.SourceEventID = bytes.Clone(notNull(e.Payload)), uuid.Nil
	return e
}

// open notes that a transaction is about to write an event with this relay's lease, and reports
// whether it may. since is when the lease begins, by the database's clock.
func (r *Relay) open(h *Handover, e eventing.Event) (since time.Time, opened bool) {
	now, clock := time.Now(), r.clock.Load()
	p, tenant := r.pauses[e.AggregateType], e.Tenant()
	if p == nil || p.paused() || !h.opened.IsZero() || clock == nil || clock.Error() > mostClockError {
		return since, false
	}
	if r.tenants.shared(now) && r.inFlight.roomOfAll() <= 0 {
		return since, false
	}
	h.opened, h.clockError, h.size = now, clock.Error(), len(e.Payload)
	return clock.At(now), r.followUps.open(h, tenant, r.inFlight)
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

// accept sends the committed event of a handover to the publishers. It returns false if the event's
// lease ends too soon, if the relay ends, or if the event has no lease.
func (r *Relay) accept(h *Handover) bool {
	b := &leasedBatch{
		events: queue.Batch{{Event: h.event}}, low: h.low, lowBehind: h.low, leaseUntil: h.opened.Add(queue.LeaseTime - h.clockError),
	}
	if !b.validFor(publishTimeout) {
		return false // the handover stays open until the lease is over
	}
	accepted := r.inFlight.accept(h, b)
	if accepted {
		r.holdBusy([]queue.Batch{b.events}, r.followUps.relays())
	}
	return accepted
}

// expireHandovers closes the handovers whose leases are over, and schedules a scan for their events.
// Their transactions may have committed. A transaction that commits later is found by a claim, because
// the claim has not seen the event before, and the lease of the event is over.
func (a *followUps) expireHandovers(f *inFlight, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, low := range f.closeExpired(now) {
		a.addScan(low, now)
		signal(a.wakeScans)
	}
}
