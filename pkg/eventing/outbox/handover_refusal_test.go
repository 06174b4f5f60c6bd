package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// Each case is an event that the relay cannot take. It is written without a lease.
func TestRefusedHandovers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		prepare func(b *bench, r *Relay)
		events  []eventing.Event
	}{
		"the relay has ended":          {prepare: func(_ *bench, r *Relay) { r.inFlight.acceptHandovers(nil) }},
		"the relay has not registered": {prepare: func(_ *bench, r *Relay) { r.followUps.seen = "" }},
		"the topic is paused":          {prepare: func(_ *bench, r *Relay) { r.pauses["video"].pause(causeOutage) }},
		"the tenant is held":           {prepare: func(_ *bench, r *Relay) { r.followUps.hold([]string{eventing.DefaultTenant}) }},
		"too many events in flight":    {prepare: func(_ *bench, r *Relay) { r.inFlight.events = claimEvents }},
		"too many bytes in flight":     {prepare: func(_ *bench, r *Relay) { r.inFlight.bytes = claimBytes }},
		"claims have reserved the room": {prepare: func(_ *bench, r *Relay) {
			r.inFlight.reserved = maxEvents / claimEvents
		}},
		"the database's clock is uncertain": {prepare: func(_ *bench, r *Relay) {
			c := *r.clock.Load()
			c.Asked = c.Answered.Add(-2 * mostClockError)
			r.clock.Store(&c)
		}},
		"the reading of the clock is old": {prepare: func(_ *bench, r *Relay) {
			c := *r.clock.Load()
			c.Asked, c.Answered = c.Asked.Add(-mostClockAge-time.Second), c.Answered.Add(-mostClockAge-time.Second)
			r.clock.Store(&c)
		}},
		"several events": {events: []eventing.Event{event("a", 1), event("b", 1)}},
		"the tenants' share is used up": {prepare: func(_ *bench, r *Relay) {
			now := time.Now()
			r.tenants.meet("one", now)
			r.tenants.note("one", now)
			r.tenants.meet("two", now)
			r.inFlight.sending["one"] = allTenantsEvents
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			r, claimed := b.handedOver(t)
			if c.prepare != nil {
				c.prepare(b, r)
			}
			if c.events == nil {
				c.events = []eventing.Event{event("a", 1)}
			}
			h := b.handOver(t, r, c.events...)
			h.Failed()
			if h.Committed() || len(claimed) != 0 || len(r.inFlight.handovers) != 0 {
				t.Errorf("%d batches with the publishers, %d handovers open", len(claimed), len(r.inFlight.handovers))
			}
			if n := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token IS NULL AND locked_at IS NULL`); n != len(c.events) {
				t.Errorf("%d events are free", n)
			}
		})
	}
	var none *Relay
	if none.Handover() != nil || none.Handover().Committed() {
		t.Error("no relay takes an event")
	}
}

// A second call in a transaction has no lease. The caller has to wake the relay.
func TestSecondAppendOfAHandover(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h := r.Handover()
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		return errors.Join(h.Append(t.Context(), tx, nil, event("a", 1)), h.Append(t.Context(), tx, nil, event("b", 1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	if h.Committed() || len(claimed) != 1 {
		t.Errorf("%d batches with the publishers", len(claimed))
	}
}

// A transaction may roll back to a savepoint after Append, and commit the rest. The relay must not
// publish from memory an event that the table does not have. It looks for the event.
func TestHandoverWithinASavepoint(t *testing.T) {
	t.Parallel()
	exec := func(sql string) func(*testing.T, pgx.Tx) {
		return func(t *testing.T, tx pgx.Tx) {
			t.Helper()
			pgtest.Exec(t, tx, sql)
		}
	}
	cases := map[string]struct {
		before, after   string
		committed, gone bool
	}{
		"rolled back":                    {before: `SAVEPOINT one`, after: `ROLLBACK TO SAVEPOINT one`, gone: true},
		"a later savepoint, rolled back": {before: `SELECT`, after: `SAVEPOINT one; ROLLBACK TO SAVEPOINT one`, committed: true},
		"nested, rolled back": {
			before: `SAVEPOINT one; SAVEPOINT two`, after: `RELEASE SAVEPOINT two; ROLLBACK TO SAVEPOINT one`, gone: true,
		},
		"released":        {before: `SAVEPOINT one`, after: `RELEASE SAVEPOINT one`},
		"left to the end": {before: `SAVEPOINT one`, after: `SELECT`},
		"behind one":      {before: `SAVEPOINT one; RELEASE SAVEPOINT one`, after: `SELECT`, committed: true},
	}
	for name, c := range cases {
		for _, version := range []int64{1, 2} {
			t.Run(fmt.Sprint(name, ", version ", version), func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				r, claimed := b.handedOver(t)
				if version > 1 {
					b.append(t, "a", 1, 1)
					b.exec(t, `UPDATE outbox SET published_at = now()`)
					r.claim(t, claimed)
				}
				h := r.Handover()
				err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
					exec(c.before)(t, tx)
					err := h.Append(t.Context(), tx, nil, event("a", version))
					exec(c.after)(t, tx)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				if h.Committed() != c.committed {
					t.Errorf("accepted: %t", !c.committed)
				}
				if c.committed {
					if len(claimed) != 1 {
						t.Errorf("%d batches with the publishers", len(claimed))
					}
					return
				}
				b.handBack(t, r, claimed) // within half a second
				if found := r.scanDue(t, claimed); found == c.gone || found && len(claimed) != 1 {
					t.Errorf("a scan is due: %t, %d events found", found, len(claimed))
				}
			})
		}
	}
}

// A caller that tries its transaction again with the same handover does not publish the event of the
// transaction that has failed.
func TestHandoverOfTwoTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	h, failed := r.Handover(), errors.New("a statement behind the event")
	for _, want := range []error{failed, nil} {
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			return errors.Join(h.Append(t.Context(), tx, nil, event("a", 1)), want)
		})
		if !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if h.Committed() {
		t.Error("accepted")
	}
	b.handBack(t, r, claimed)
	r.claim(t, claimed)
	if len(claimed) != 1 || b.count(t, `SELECT count(*) FROM outbox WHERE id = '`+(<-claimed).events.Head().String()+`'`) != 1 {
		t.Error("the event of the second transaction is not claimed")
	}
}

// Handovers and claims together never hold more than the channel of the publishers has room for.
// Otherwise accept would block with the lock that the publishers need.
func TestHandoversLeaveRoomForClaims(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.acceptHandovers(make(chan *leasedBatch, maxEvents))
	handovers := 0
	for f.open(&Handover{size: 10}) {
		handovers++
	}
	if handovers != claimEvents || f.bytes != 10*claimEvents {
		t.Errorf("%d handovers of %d bytes are open", handovers, f.bytes)
	}
	claims := 0
	for f.reserve(byClaim) {
		claims++
	}
	if claims != 2 || f.events+claims*claimEvents > maxEvents {
		t.Errorf("room for %d claims, with %d events", claims, f.events)
	}
	for h := range f.handovers {
		f.forget(h)
		f.forget(h)
	}
	if f.events != 0 || f.bytes != 0 {
		t.Errorf("%d events, %d bytes are left", f.events, f.bytes)
	}
	select {
	case <-f.room[byClaim]:
	default:
		t.Error("the claims are not notified of the room")
	}
}

// The events that are handed over count as their tenant's. So a busy tenant is held.
func TestHandoversHoldABusyTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, _ func(context.Context) error) error {
		<-ctx.Done()
		return ctx.Err()
	})
	r, claimed := b.handedOver(t)
	r.tenants = newTenantRates(1, "")
	other := event("other", 1)
	other.TenantID = "other"
	if !b.handOver(t, r, other).Committed() {
		t.Fatal("not handed over")
	}
	for i := range 200 {
		e := event(fmt.Sprint(i), 1)
		e.TenantID = "busy"
		if !b.handOver(t, r, e).Committed() {
			if i < sharedEvents || r.followUps.heldTenants() != 1 {
				t.Errorf("after %d events %d tenants are held", i, r.followUps.heldTenants())
			}
			return
		}
		if len(claimed) == cap(claimed) {
			for range len(claimed) {
				<-claimed
			}
		}
	}
	t.Error("a busy tenant's events are taken without limit")
}
