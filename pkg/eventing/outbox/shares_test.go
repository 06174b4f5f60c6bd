package outbox

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// acceptWhen lets a request through to the broker for each value of accept.
func (b *bench) acceptWhen(accept <-chan time.Time) *arrivals {
	a := b.countArrivals()
	count := b.fault
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		select {
		case <-accept:
			return count(ctx, req, send)
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	})
	return a
}

// fillRetries gives a tenant so many aggregates with a retry that is due. The relay knows of their
// time only: their transaction is one of before its start.
func (b *bench) fillRetries(t *testing.T, tenant string, aggregates int) {
	t.Helper()
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id, next_retry_at, xact)
		SELECT gen_random_uuid(), 'video', $1 || '-' || a, 'VideoUpdated', 1, '', $1, now(), '3'
		  FROM generate_series(1, $2::int) a`, tenant, aggregates)
}

// The broker takes 200 events a second, a fifth of what a tenant may publish. Busy tenants,
// although below their rates, have a bounded part of the events on their way, so that the next event
// of another one waits behind those, and not behind all that the relay has room for.
func TestBusyTenantsLeaveRoomWhereTheBrokerIsSlow(t *testing.T) {
	t.Parallel()
	const backlog = 6000
	for _, c := range []struct {
		name    string
		tenants int
		retries bool
		most    int
	}{
		{"one", 1, false, tenantEvents + 2*sharedEvents},
		{"ten", 10, false, allTenantsEvents + 3*sharedEvents},
		{"one, whose events are retries", 1, true, retryEvents + 2*sharedEvents},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			accept := time.NewTicker(5 * time.Millisecond)
			defer accept.Stop()
			a := b.acceptWhen(accept.C)
			r := b.startAt(t, DefaultTenantRate)
			b.appendFor(t, "quiet", "first")
			b.appendFor(t, "busy", "second")
			r.Wake()
			b.poll(t, func() bool { return a.total() == 2 }, "the first events do not leave")
			if c.retries {
				b.fillRetries(t, "busy0", backlog)
			} else {
				for i := range c.tenants {
					b.fill(t, fmt.Sprint("busy", i), backlog/c.tenants, 1)
				}
			}
			r.Wake()
			b.poll(t, func() bool { return a.total() > 800 }, "the backlog does not leave")
			committed := a.total()
			b.appendFor(t, "quiet", "new")
			r.Wake()
			b.poll(t, func() bool { _, arrived := a.position("new"); return arrived }, "a new event does not leave")
			if n, _ := a.position("new"); n-committed > c.most {
				t.Errorf("after %d events of others, want %d at most", n-committed, c.most)
			}
		})
	}
}

// A tenant has many events of one aggregate that are published and cannot be marked, because
// another session has locked a row. They do not count as on their way: the tenant's other events
// leave, although another tenant is active.
func TestALockedRowHoldsUpNoTenant(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	a := b.countArrivals()
	const versions = tenantEvents + 100
	b.fill(t, "busy", 1, versions)
	release := b.lock(t, "busy-1", versions/2)
	defer release()
	r := b.newRelay(t)
	r.claimSize.versions = versions
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	b.poll(t, func() bool { return a.total() >= versions }, "the aggregate's events do not leave")
	b.appendFor(t, "quiet", "quiet")
	r.Wake()
	b.poll(t, func() bool { _, arrived := a.position("quiet"); return arrived }, "the other tenant's event does not leave")
	for i := range 5 { // a scan on its way may find the first
		other := fmt.Sprint("other", i)
		b.appendFor(t, "busy", other)
		r.Wake()
		b.poll(t, func() bool { _, arrived := a.position(other); return arrived }, "an event of another aggregate does not leave")
	}
	if r.inFlight.total() < versions {
		t.Error("the test shows nothing: the locked row's events are settled")
	}
}

// hasSaved reports whether a held tenant has saved up all that it may.
func (f *followUps) hasSaved(tenant string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.heldTenant(tenant)
	return h != nil && h.saved.events >= min(tenantEvents, 2*perTurn(DefaultTenantRate)+h.saved.sending)
}

// A held tenant has few aggregates, and is far from the broker, which answers all their requests at
// once. Its turns fill its share of the events on their way, and not only what it may claim in the
// time of a turn.
func TestAHeldTenantUsesItsShare(t *testing.T) {
	t.Parallel()
	// many are far more than two turns, and fewer than what a slow machine allows between two turns.
	const aggregates, many = 4, 100
	b := newBench(t)
	accept := make(chan time.Time)
	a := b.acceptWhen(accept)
	var waiting, answered atomic.Int64
	accepting := b.fault
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		waiting.Add(1)
		defer answered.Add(1)
		defer waiting.Add(-1)
		return accepting(ctx, req, send)
	})
	r := b.startAt(t, DefaultTenantRate)
	b.appendFor(t, "quiet", "first")
	b.appendFor(t, "busy", "second")
	r.Wake()
	answer := func(requests int64) {
		b.poll(t, func() bool { return waiting.Load() == requests }, "requests are missing")
		all := answered.Load() + requests
		for range requests {
			accept <- time.Now()
		}
		b.poll(t, func() bool { return answered.Load() == all }, "requests are not answered")
	}
	answer(2)
	b.poll(t, func() bool { return a.total() == 2 }, "the first events do not leave")
	b.fill(t, "busy", aggregates, 1000)
	sending := func() int {
		r.inFlight.mu.Lock()
		defer r.inFlight.mu.Unlock()
		return r.inFlight.sending["busy"]
	}
	for sending() < many && a.total() < 2000 {
		b.poll(t, func() bool {
			r.followUps.hold([]string{"busy"}) // it has caught up until the relay finds the events
			return waiting.Load() == aggregates && r.followUps.hasSaved("busy")
		}, "an aggregate has no request on its way, or the tenant has saved nothing up in the time of an answer")
		if sending() < many {
			answer(aggregates)
		}
	}
	if n := sending(); n < many {
		t.Errorf("%d events are on their way", n)
	}
	if r.followUps.heldTenants() == 0 {
		t.Error("the test shows nothing: the tenant is not held")
	}
	close(accept)
}

// All tenants together have a bounded number of events on their way: the tenants with few have as
// many as they need, and the others share the rest.
func TestTenantsShareTheWayToTheBroker(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	share := func(of map[string]int, want int, busy ...string) {
		t.Helper()
		f.sending, f.leased = of, of
		got := f.crowding("canary")
		slices.Sort(got)
		if n := f.share(); n != want || !slices.Equal(got, busy) {
			t.Errorf("%v: a share of %d for %v, want %d for %v", of, n, got, want, busy)
		}
	}
	share(nil, tenantEvents)
	share(map[string]int{"a": tenantEvents, "b": 1}, tenantEvents)
	share(map[string]int{"a": tenantEvents + 1, "canary": 1000}, tenantEvents, "a")
	share(map[string]int{"a": 400, "b": 450, "c": 500, "d": 500, "e": 100}, tenantEvents)
	share(map[string]int{"a": 400, "b": 500, "c": 700, "d": 500, "e": 50, "f": 200}, 450, "a", "b", "c", "d", "f")
	many := map[string]int{"busy": 1000}
	for i := range 1900 {
		many[fmt.Sprint(i)] = 1
	}
	share(many, 100, "busy")
	if sending, room := f.ofTenant("busy"); sending != 1000 || room >= 0 {
		t.Errorf("%d are on their way, and room for %d more", sending, room)
	}
	many["busy"] = 60
	share(many, tenantEvents)
	if _, room := f.ofTenant("busy"); room != 40 || f.roomOfAll() != 40 {
		t.Errorf("room for %d more, and for %d of all, want 40", room, f.roomOfAll())
	}
	clear(many)
	for i := range 150 {
		many[fmt.Sprint(i)] = 14
	}
	many["held"] = 20
	share(many, fewEvents) // no tenant has many
	if _, room := f.ofTenant("held"); room != fewEvents-20 {
		t.Errorf("room for %d more, where others fill the way", room)
	}
	share(map[string]int{"a": 300, "b": 300, "c": 300, "d": 300, "e": 300, "f": 300, "g": 300}, 285, "a", "b", "c", "d", "e", "f", "g")
}

// Events that cannot be marked, because their rows are locked, leave the relay's room to others, too.
func TestATenantsLeasesAreBounded(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.leased = map[string]int{"a": tenantLeases + 1, "b": tenantLeases - 10, "c": 2000}
	if got := f.crowding(""); !slices.Equal(got, []string{"c", "a"}) {
		t.Errorf("%v are to be held", got)
	}
	for tenant, want := range map[string]bool{"a": false, "b": true} {
		if _, room := f.ofTenant(tenant); room > 0 != want || room > 10 {
			t.Errorf("room for %d more of %s", room, tenant)
		}
	}
}

// Events that the broker has answered have left, whatever else becomes of them. Retries count apart.
func TestAnsweredEventsAreNotOnTheirWay(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	all := slices.Concat(
		f.add(claimResult{Claimed: queue.Claimed{Batches: batchFor("a", 2)}}),
		f.add(claimResult{Claimed: queue.Claimed{Batches: batchFor("b", 3)}, retries: true}),
		f.add(claimResult{Claimed: queue.Claimed{Batches: batchFor("c", 5)}, candidates: true}))
	if f.sending["a"] != 2 || f.retrying != 3 || len(f.sending) != 1 {
		t.Errorf("on their way: %v, %d retries", f.sending, f.retrying)
	}
	for _, h := range all {
		f.answer(h)
	}
	if len(f.sending) != 0 || f.retrying != 0 || f.total() != 2+3+1 {
		t.Errorf("answered: %v, %d retries, %d in flight", f.sending, f.retrying, f.total())
	}
	f.removeAll(all)
	if len(f.leased) != 0 || len(f.sending) != 0 || f.retrying != 0 || f.total() != 0 {
		t.Errorf("settled: %v, %d retries, %d in flight", f.sending, f.retrying, f.total())
	}
}

// A turn asks for as many versions of each aggregate as fill its claim. So it is full while each has
// more, and the tenant is behind.
func TestATurnOfFewAggregatesIsFull(t *testing.T) {
	t.Parallel()
	const aggregates = 3 // no divisor of what a turn may claim
	b := newBench(t)
	r, claimed := b.registered(t)
	b.fill(t, "x", aggregates, 50)
	b.exec(t, `UPDATE outbox SET published_at = now() WHERE version = 1`)
	r.followUps.holdSaved("x")
	h := r.followUps.heldTenant("x")
	for i := range aggregates {
		h.published.list = append(h.published.list, followUp{
			AggregateVersion: queue.AggregateVersion{AggregateType: "video", AggregateID: fmt.Sprint("x-", i+1), Version: 1},
			low:              r.followUps.seen, tenant: "x",
		})
	}
	r.tenants.count(batchFor("x", 1), 1, time.Now()) // several are active
	r.tenants.count(batchFor("y", 1), 1, time.Now())
	before := h.behindAt
	if !r.inFlight.reserve(byTurn) {
		t.Fatal("no room")
	}
	if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
		t.Fatal(err)
	}
	if left := int(h.saved.events); left != 0 || !h.behindAt.After(before) {
		t.Errorf("the turn has claimed %d events and left %d of its rate; behind: %t", r.inFlight.total(), left, h.behindAt.After(before))
	}
}

// While retries wait for others on their way to the broker, scans leave them, too.
func TestScansLeaveRetriesThatWait(t *testing.T) {
	t.Parallel()
	for _, waiting := range []bool{true, false} {
		b := newBench(t)
		r, claimed := b.registered(t)
		b.fillRetries(t, "x", 10)
		b.append(t, "new", 1, 1)
		r.tenants.count(batchFor("x", 1), 1, time.Now())
		r.tenants.count(batchFor("y", 1), 1, time.Now())
		want := 11
		if waiting {
			r.inFlight.retrying, want = retryEvents, 1
		}
		s := newScanSchedule()
		s.started(datedLow{snapshot: queue.Beginning})
		if !r.inFlight.reserve(byScan) {
			t.Fatal("no room")
		}
		if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
			t.Fatal(err)
		}
		if n := r.inFlight.total(); n != want {
			t.Errorf("retries wait: %t, and the scan has claimed %d events, want %d", waiting, n, want)
		}
	}
}

// A turn is small, because the tenant is held. It says nothing about the claims of others.
func TestTurnsLeaveTheSizeOfClaims(t *testing.T) {
	t.Parallel()
	r := newBench(t).newRelay(t)
	claimed := make(chan *leasedBatch, 2)
	aggregates, versions := r.claimSize.limits()
	for _, tenant := range []string{"x", ""} {
		r.inFlight.reserve(byTurn)
		r.dispatch(claimResult{
			Claimed: queue.Claimed{Batches: batchFor("x", minPerAggregate)},
			claim:   queue.Claim{Tenant: tenant, Events: claimEvents},
		}, claimed)
		a, v := r.claimSize.limits()
		if same := a == aggregates && v == versions; same != (tenant != "") {
			t.Errorf("after a claim for tenant %q of %d events: %d aggregates and %d versions, before it %d and %d",
				tenant, minPerAggregate, a, v, aggregates, versions)
		}
	}
}
