package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// arrivals counts the messages that reach the broker.
type arrivals struct {
	mu sync.Mutex
	// before is how many had arrived before the first of an aggregate.
	before map[string]int
	all    int
}

func (b *bench) countArrivals() *arrivals {
	a := &arrivals{before: map[string]int{}}
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		a.mu.Lock()
		for _, m := range req.GetMessages() {
			if _, seen := a.before[m.GetOrderingKey()]; !seen {
				a.before[m.GetOrderingKey()] = a.all
			}
			a.all++
		}
		a.mu.Unlock()
		return send(ctx)
	})
	return a
}

func (a *arrivals) total() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all
}

// position is how many messages arrived before the first of an aggregate, if it has arrived.
func (a *arrivals) position(aggregate string) (before int, arrived bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, arrived = a.before[aggregate]
	return before, arrived
}

// fill gives a tenant pending events, so many versions of so many aggregates.
func (b *bench) fill(t *testing.T, tenant string, aggregates, versions int) {
	t.Helper()
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		SELECT gen_random_uuid(), 'video', $1 || '-' || a, 'VideoUpdated', v, '', $1
		  FROM generate_series(1, $2::int) a, generate_series(1, $3::int) v
		 ORDER BY v, a`, tenant, aggregates, versions)
}

// appendFor commits the first event of an aggregate of a tenant.
func (b *bench) appendFor(t *testing.T, tenant, aggregate string) {
	t.Helper()
	e := event(aggregate, 1)
	e.TenantID = tenant
	if err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error { return Append(t.Context(), tx, nil, e) }); err != nil {
		t.Fatal(err)
	}
}

// startAt runs a relay with this rate of tenants until the test ends.
func (b *bench) startAt(t *testing.T, perSecond int) *Relay {
	t.Helper()
	r := NewRelay(b.db, b.client, b.topics, slog.New(slog.DiscardHandler), func() {}, Options{TenantRate: perSecond})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// A tenant has 20,000 events pending. Another one's event leaves among the first all the
// same: whether it was committed behind them while no relay ran, or comes while they leave.
func TestABusyTenantDelaysNoOther(t *testing.T) {
	t.Parallel()
	// The first claim may be that large, because the relay has met one tenant only.
	const backlog, perSecond, most = 20_000, 100, claimEvents + 2*sharedEvents
	for _, quiet := range []string{"quiet", eventing.DefaultTenant, ""} {
		t.Run("tenant "+quiet, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			a := b.countArrivals()
			b.appendFor(t, quiet, "first")
			b.fill(t, "busy", backlog, 1)
			b.appendFor(t, quiet, "behind")
			r := b.startAt(t, perSecond)
			for i := range 3 {
				aggregate, since := fmt.Sprint("new", i), time.Now()
				b.appendFor(t, quiet, aggregate)
				committed := a.total()
				r.Wake()
				b.poll(t, func() bool { _, arrived := a.position(aggregate); return arrived }, "a new event does not leave")
				// A held tenant goes on at its rate, however long this machine takes.
				if n, _ := a.position(aggregate); n-committed > most+int(perSecond*time.Since(since).Seconds()) {
					t.Errorf("new: after %d events of the other tenant", n-committed)
				}
			}
			b.poll(t, func() bool { _, arrived := a.position("behind"); return arrived }, "the event behind the backlog does not leave")
			if n := a.total(); n > backlog/2 {
				t.Fatalf("the test shows nothing: %d of the other tenant's events had left", n)
			}
		})
	}
}

// While three tenants wait for turns, all of their events leave, in the order of each
// aggregate: through outages, lost answers, several relays, and the end of a relay in the
// middle. Then none is held.
func TestHeldTenantsKeepOrder(t *testing.T) {
	t.Parallel()
	const aggregates, versions = 8, 250
	b := newBench(t)
	faults := rand.New(rand.NewPCG(3, 4))
	b.setFault(func(ctx context.Context, _ *pubsubpb.PublishRequest, send func(context.Context) error) error {
		b.mu.Lock()
		dice := faults.IntN(40)
		b.mu.Unlock()
		switch dice {
		case 0:
			return status.Error(codes.Unavailable, "connection refused")
		case 1: // arrives, but the answer is lost
			if err := send(ctx); err != nil {
				return err
			}
			return status.Error(codes.DeadlineExceeded, "answer lost")
		default:
			return send(ctx)
		}
	})
	tenants := []string{"x", "y", ""}
	for _, tenant := range tenants {
		b.fill(t, tenant, aggregates, versions)
	}
	early := b.relay(t, 1) // at the default rate
	b.poll(t, func() bool { return len(b.server.Messages()) > 0 }, "nothing leaves")
	late := b.startAt(t, 1000)
	early()
	held := false
	b.poll(t, func() bool {
		held = held || late.followUps.due().held
		return b.count(t, unpublished) == 0
	}, "events are left")
	if !held {
		t.Error("the test shows nothing: no tenant was held")
	}
	for _, tenant := range tenants {
		for i := range aggregates {
			firstSightings(t, b.sent(fmt.Sprintf("%s-%d", tenant, i+1)), versions)
		}
	}
	b.poll(t, func() bool { return !late.followUps.due().held }, "a tenant is held although nothing of its is pending")
}

// A relay that has met one tenant holds it when another relay has met another one.
func TestRelaysTellEachOtherOfTenants(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	relays := [2]*Relay{b.newRelay(t), b.newRelay(t)}
	now := time.Now()
	relays[0].tenants.count(batchFor("quiet", 1), 1, now)
	for _, r := range relays {
		r.tenants.count(batchFor("busy", 1), 1, now)
	}
	for range 2 { // the first has nothing to learn from yet
		for _, r := range relays {
			beat(t, r)
		}
	}
	for i, r := range relays {
		if !r.tenants.shared(time.Now()) {
			t.Errorf("relay %d knows of one tenant only", i)
		}
	}
}

func batchFor(tenant string, events int) []queue.Batch {
	b := make(queue.Batch, events)
	for i := range b {
		b[i].Event = event("a", int64(i)+1)
		b[i].TenantID = tenant
	}
	return []queue.Batch{b}
}

func TestATenantIsOverItsRateOnlyNextToOthers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rates := newTenantRates(1000, "")
	if busy := rates.count(batchFor("a", 2000), 1, now); busy != nil {
		t.Errorf("alone: %v", busy)
	}
	if busy := rates.count(batchFor("b", 1), 1, now); busy != nil {
		t.Errorf("one event: %v", busy)
	}
	if busy := rates.count(batchFor("a", 2000), 1, now); len(busy) != 1 || busy[0] != "a" {
		t.Errorf("next to another: %v", busy)
	}
	second := now.Add(time.Second)
	rates.count(batchFor("", 100), 4, now)
	if busy := rates.count(batchFor("", 99), 4, now.Add(400*time.Millisecond)); len(busy) != 0 {
		t.Errorf("a fourth of the rate: %v", busy)
	}
	if busy := rates.count(batchFor("", 100), 4, now.Add(700*time.Millisecond)); len(busy) != 1 || busy[0] != eventing.DefaultTenant {
		t.Errorf("more than a fourth of the rate, with three other relays: %v", busy)
	}
	for range 2 {
		if busy := rates.count(batchFor("a", 2000), 1, second.Add(2*activeFor)); busy != nil {
			t.Errorf("alone again: %v", busy)
		}
	}
	for i := range 2 * maxTenants {
		rates.count(batchFor(fmt.Sprint(i), 1), 1, now)
	}
	if n := len(rates.limits); n > maxTenants {
		t.Errorf("%d limits", n)
	}
	measuring := newTenantRates(1000, "canary")
	for range 2 {
		measuring.count(batchFor("canary", 1), 1, now)
		if busy := measuring.count(batchFor("a", 2000), 1, now); busy != nil {
			t.Errorf("next to a canary: %v", busy)
		}
	}
	none := newTenantRates(NoTenantRate, "")
	none.count(batchFor("a", 1), 1, now)
	if busy := none.count(batchFor("b", 100_000), 1, now); busy != nil {
		t.Errorf("without a rate: %v", busy)
	}
}

// Two relays have each met a tenant once. It stops to write, and they no longer take it for
// active, although each tells the other one of the tenants that it has met.
func TestASilentTenantIsForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	relays := [...]*tenantRates{newTenantRates(1000, ""), newTenantRates(1000, "")}
	for _, r := range relays {
		r.count(batchFor("quiet", 1), len(relays), now)
	}
	for range 3 * int(activeFor/time.Second) {
		now = now.Add(time.Second)
		for i, r := range relays {
			r.count(batchFor("busy", 10), len(relays), now)
			for _, tenant := range r.lastActive(now) {
				relays[1-i].meet(tenant, now)
			}
		}
	}
	for i, r := range relays {
		if r.shared(now) {
			t.Errorf("relay %d shares with a tenant that has written nothing for two minutes; it names %v", i, r.lastActive(now))
		}
	}
}

// A tenant that seldom writes, and then has a claim full of events, is not over its rate.
func TestASingleClaimIsWithinTheRate(t *testing.T) {
	t.Parallel()
	rates, now := newTenantRates(DefaultTenantRate, ""), time.Now()
	rates.count(batchFor("other", 1), 1, now)
	rates.count(batchFor("seldom", 1), 1, now)
	now = now.Add(10 * time.Second)
	if busy := rates.count(batchFor("seldom", sharedEvents), 1, now); len(busy) != 0 {
		t.Errorf("%v are over their rate", busy)
	}
	if busy := rates.count(batchFor("seldom", sharedEvents), 1, now); len(busy) != 1 {
		t.Errorf("%v are over their rate, after two claims at the same moment", busy)
	}
}

// The metrics name the ten tenants with the most events, and join the rest.
func TestTenantsOfMetricsAreFew(t *testing.T) {
	t.Parallel()
	var all []queue.TenantBacklog
	for i := range 13 {
		all = append(all, queue.TenantBacklog{Tenant: fmt.Sprint(i), Pending: int64(100 - i), Parked: 1, Oldest: time.Duration(i)})
	}
	got := labelled(all)
	want := queue.TenantBacklog{Tenant: instrument.Other, Pending: 90 + 89 + 88, Parked: 3, Oldest: 12}
	if len(got) != instrument.MaxValues+1 || got[9] != all[9] || got[10] != want {
		t.Errorf("%+v", got)
	}
	if got := labelled(all[:10]); len(got) != 10 {
		t.Errorf("%d of 10", len(got))
	}
}
