package outbox

import (
	"bytes"
	"context"
	"errors"
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

// asRead returns e as a claim would read it from the table. So the message is the same with and
// without a claim. The payload is a copy, because the caller may reuse its slice after Append.
func asRead(e eventing.Event) eventing.Event {
	e.OccurredAt = e.OccurredAt.UTC().Truncate(time.Microsecond)
	e.Payload, e.SourceEventID = bytes.Clone(notNull(e.Payload)), uuid.Nil
	return e
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

// isOver reports whether the lease of a handover is over, and each claim that began before the end of
// the lease has ended. From then on a claim finds the event if its transaction commits. clock must be a
// reading from after the end of the lease, as the clock of this process measures the lease. An earlier
// reading would not show that the database's clock was set back meanwhile. If it was set back, the
// lease lasts longer.
func (h *Handover) isOver(now time.Time, clock queue.Clock) bool {
	return now.Sub(h.opened) > handoverTime && clock.Answered.Sub(h.opened) > queue.LeaseTime &&
		clock.At(now).Sub(h.since) > handoverTime
}

// leaseUntil is when the lease ends at the earliest, by the clock of this process.
func (h *Handover) leaseUntil() time.Time { return h.opened.Add(queue.LeaseTime - h.clockError) }

// expireHandovers looks for the events of the handovers whose leases are over, a last time.
func (r *Relay) expireHandovers(now time.Time) {
	if clock := r.clock.Load(); clock != nil {
		r.inFlight.expireHandovers(now, *clock)
	}
}
