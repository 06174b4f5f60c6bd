package outbox

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// mostClockError is the largest error of the estimate of the database's time (queue.Clock.Error)
	// with which a relay opens handovers. The relay counts a lease as shorter by that error.
	// mostClockAge is the largest age of the reading of the database's clock with which a relay opens
	// handovers.
	mostClockError, mostClockAge = time.Second, 3 * queue.HeartbeatEvery
)

// Handover passes the event of one transaction to the relay of the same process. The relay publishes
// the event straight after the commit, without a claim that finds the event in the table. For this
// the event is written with the relay's lease, so that no other relay publishes it.
//
// A handover is only a shortcut. If the relay cannot take the event, Append writes the event
// without a lease, and the relays find it as usual. After the transaction the caller calls Committed
// or Failed. If the caller calls neither, or if the process dies, the relays find the event when its
// lease is over, 20 to 35 s after Append.
//
// The relay publishes the event as it was passed to Append, and does not look into the table. So the
// transaction must commit with synchronous_commit on. If the event is written within a savepoint, or
// Append is called for another transaction, too, the relay looks for the event, as after Failed.
//
// A Handover serves one transaction, and is not safe for concurrent use. All methods of a nil
// Handover are valid, and hand over nothing.
type Handover struct {
	relay *Relay

	// Append sets the fields below.
	event  eventing.Event
	size   int       // of the payload, in bytes
	low    datedLow  // of the event
	opened time.Time // when Append was called
	// since is when the lease begins, by the database's clock. That is the moment opened, or up to
	// clockError earlier.
	since      time.Time
	clockError time.Duration
	// tx is the transaction of the event.
	tx pgx.Tx
	// hasUnleased is true if Append has written events without a lease.
	hasUnleased bool
	// uncertain is true if the event may not exist although the transaction has committed. Append has
	// written it within a savepoint, or has been called for another transaction, too.
	uncertain bool

	// leaseOver is true once the lease of the event is over (see isOver). The lock of inFlight guards it.
	leaseOver bool
	// leaseUncertain is true if a statement that takes the lease from the event has failed. The statement
	// may have been executed nevertheless. Only the settler uses this field.
	leaseUncertain bool
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
// yet, or if the relay is not ready for the event. The relay is not ready if one of these is true:
//
//   - It does not run.
//   - It has no topic for the event's type, or the topic is paused, or the event's tenant is held.
//   - It has 2,000 events or 8 MiB of payloads in flight, or so many that the claims under way may
//     use up the rest of its room.
//   - Its last reading of the database's clock is more than 15 s old, or may be wrong by more than
//     a second, because the database is slow or away.
//
// A second call for the same transaction leases nothing either.
func (h *Handover) Append(ctx context.Context, tx pgx.Tx, with *pgx.Batch, events ...eventing.Event) error {
	if h == nil {
		return Append(ctx, tx, with, events...)
	}
	if err := check(events); err != nil {
		return fmt.Errorf("append event: %w", err)
	}
	events = created(ctx, events)
	l, open := h.relay.open(ctx, h, events)
	if !open {
		h.hasUnleased, h.uncertain = true, h.uncertain || h.tx != nil && !isSame(h.tx, tx)
		return write(ctx, tx, with, events, nil)
	}
	h.tx = tx
	err := write(ctx, tx, with, events, &l)
	h.uncertain = l.savepoint
	if l.written && !l.taken || isRolledBack(tx, err) {
		h.relay.inFlight.forget(h)
	}
	return err
}

// isSame reports whether a and b are certainly the same transaction. pgx regards a savepoint as another
// transaction.
func isSame(a, b pgx.Tx) bool { return reflect.ValueOf(a).Comparable() && a == b }

// asRead returns e as a claim would read it from the table. So the message is the same with and
// without a claim. The payload is a copy, because the caller may reuse its slice after Append.
func asRead(e eventing.Event) eventing.Event {
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	e.Payload, e.SourceEventID = bytes.Clone(notNull(e.Payload)), uuid.Nil
	return e
}

// acceptHandovers makes open accept handovers from now on. Their batches go to the channel in the
// parameter to. The channel has room for all events that may be in flight, so no send to it waits.
func (f *inFlight) acceptHandovers(to chan<- *leasedBatch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handedTo = to
}

// open opens h for a transaction that is about to write events, and returns the lease of the event.
// opened is false if the relay cannot take the event: see [Handover.Append].
func (r *Relay) open(ctx context.Context, h *Handover, events []eventing.Event) (l lease, opened bool) {
	now, clock := time.Now(), r.clock.Load()
	if len(events) != 1 || ctx.Err() != nil || !h.opened.IsZero() {
		return l, false
	}
	if clock == nil || clock.Error() > mostClockError || now.Sub(clock.Answered) > mostClockAge {
		return l, false
	}
	p := r.pauses[events[0].AggregateType]
	if p == nil || p.paused() || r.tenants.shared(now) && r.inFlight.roomOfAll() <= 0 {
		return l, false
	}
	h.event, h.size = asRead(events[0]), len(events[0].Payload)
	h.opened, h.since, h.clockError = now, clock.At(now), clock.Error()
	return lease{token: r.token, since: h.since}, r.followUps.open(h, r.inFlight)
}

// open adds a handover to those that are open, unless the relay does not run, the event's tenant is
// held, or there is no room. A heartbeat computes the relay's low under the same lock. So a low that
// leaves this handover out is not later than the handover's own low.
func (f *followUps) open(h *Handover, inFlight *inFlight) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h.low = datedLow{f.seen, f.met.life}
	return f.seen != "" && f.heldTenant(h.event.Tenant()) == nil && inFlight.open(h)
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

// Committed tells the relay that the transaction has committed, and reports whether the relay
// publishes all events of the transaction without a claim. If it returns false, the caller calls
// [Relay.Wake]. If the event was written within a savepoint, Committed returns false, and the event
// waits for up to a second.
func (h *Handover) Committed() bool {
	if h == nil {
		return false
	}
	accepted := !h.uncertain && h.relay.accept(h)
	if !accepted {
		h.Failed()
	}
	return accepted && !h.hasUnleased
}

// accept sends the committed event of a handover to the publishers. It returns false if the event's
// lease ends too soon, if the relay ends, or if the event has no lease.
func (r *Relay) accept(h *Handover) bool {
	b := &leasedBatch{events: queue.Batch{{Event: h.event}}, leaseUntil: h.leaseUntil()}
	if !b.validFor(publishTimeout) {
		return false
	}
	accepted := r.inFlight.accept(h, b)
	if accepted {
		r.metrics.handedOver.Add(context.Background(), 1)
		r.holdBusy([]queue.Batch{b.events}, r.followUps.relays())
	}
	return accepted
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

// leaseUntil is when the lease ends at the earliest, by the clock of this process.
func (h *Handover) leaseUntil() time.Time { return h.opened.Add(queue.LeaseTime - h.clockError) }
