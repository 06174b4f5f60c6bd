package outbox

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
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
	relays[0].tenants.claimed(batchFor("quiet", 1), 1, now)
	for _, r := range relays {
		r.tenants.claimed(batchFor("busy", 1), 1, now)
	}
	for range 2 { // the first has nothing to learn from yet
		for _, r := range relays {
			if err := r.writeHeartbeat(t.Context(), false); err != nil {
				t.Fatal(err)
			}
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
	if busy := rates.claimed(batchFor("a", 2000), 1, now); busy != nil {
		t.Errorf("alone: %v", busy)
	}
	if busy := rates.claimed(batchFor("b", 1), 1, now); busy != nil {
		t.Errorf("one event: %v", busy)
	}
	if busy := rates.claimed(batchFor("a", 2000), 1, now); len(busy) != 1 || busy[0] != "a" {
		t.Errorf("next to another: %v", busy)
	}
	second := now.Add(time.Second)
	rates.claimed(batchFor("", 100), 4, now)
	if busy := rates.claimed(batchFor("", 99), 4, now.Add(400*time.Millisecond)); len(busy) != 0 {
		t.Errorf("a fourth of the rate: %v", busy)
	}
	if busy := rates.claimed(batchFor("", 100), 4, now.Add(700*time.Millisecond)); len(busy) != 1 || busy[0] != eventing.DefaultTenant {
		t.Errorf("more than a fourth of the rate, with three other relays: %v", busy)
	}
	for range 2 {
		if busy := rates.claimed(batchFor("a", 2000), 1, second.Add(2*activeFor)); busy != nil {
			t.Errorf("alone again: %v", busy)
		}
	}
	for i := range 2 * maxTenants {
		rates.claimed(batchFor(fmt.Sprint(i), 1), 1, now)
	}
	if n := len(rates.limits); n > maxTenants {
		t.Errorf("%d limits", n)
	}
	measuring := newTenantRates(1000, "canary")
	for range 2 {
		measuring.claimed(batchFor("canary", 1), 1, now)
		if busy := measuring.claimed(batchFor("a", 2000), 1, now); busy != nil {
			t.Errorf("next to a canary: %v", busy)
		}
	}
	none := newTenantRates(NoTenantRate, "")
	none.claimed(batchFor("a", 1), 1, now)
	if busy := none.claimed(batchFor("b", 100_000), 1, now); busy != nil {
		t.Errorf("without a rate: %v", busy)
	}
}

// holdSaved holds a tenant that has saved up what it may.
func (a *followUps) holdSaved(name string) {
	a.hold([]string{name})
	a.heldTenant(name).saved.events = tenantEvents
}

// The low of a relay covers what held tenants have left, wherever that stands.
func TestLowCoversHeldTenants(t *testing.T) {
	t.Parallel()
	a, f, rates := newFollowUps(), newInFlight(), newTenantRates(1000, "")
	low := func(want queue.TxSnapshot, when string) {
		t.Helper()
		if got := a.low(f); got != want {
			t.Errorf("%s: low %q, want %q", when, got, want)
		}
	}
	a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.published.list = []followUp{{low: "60:60:", tenant: "x"}, {low: "70:70:", tenant: "y"}}
	a.holdSaved("x")
	low("60:60:", "published versions go with the tenant")
	if todo := a.take(10); len(todo.after) != 1 || len(todo.held) != 1 {
		t.Fatalf("a claim has %d versions and skips %v", len(todo.after), todo.held)
	}
	a.claimed(queue.Claimed{Seen: "91:91:"}, toClaim{exclusions{held: []string{"x"}}, "75:75:", nil}, "70:70:")
	h, _, after := a.turn(rates, f, 1)
	if h == nil || len(after) != 1 {
		t.Fatalf("a turn of %v has %d versions", h, len(after))
	}
	low("60:60:", "a turn has taken them")
	a.turnFailed(h, after)
	low("60:60:", "and given back")
	if _, _, page := a.turn(rates, f, 1); page != nil {
		t.Fatal("versions come twice before a page")
	}
	low("60:60:", "scanning")
	if h, _, _ = a.turn(rates, f, 1); h == nil {
		t.Fatal("no turn")
	}
	a.turnFollowed(h, nil, "", "92:92:", a.met.life, nil)
	low("75:75:", "followed; the scan is of what a claim has skipped")
	a.claimed(queue.Claimed{Seen: "92:92:"}, toClaim{exclusions{held: []string{"x"}}, "91:91:", nil}, "91:91:")
	a.turnScanned(h, queue.Page{Done: true}, nil)
	low("91:91:", "scanned, and a claim has skipped events since")
	a.left(h, "72:72:", a.met.life, "92:92:", time.Now().Add(time.Hour))
	low("72:72:", "a turn had to leave events")
	f.batches[uuid.New()] = &leasedBatch{events: batchFor("x", 1)[0]}
	a.releaseCaughtUp(f, true, time.Now())
	if !a.due().held {
		t.Error("released with an event in flight")
	}
	clear(f.batches)
	a.releaseCaughtUp(f, true, time.Now())
	if a.due().held {
		t.Error("the tenant is not released")
	}
	low("72:72:", "released: a scan for all finds them")
	a.claimed(queue.Claimed{Seen: "93:93:"}, toClaim{exclusions{held: []string{"x"}}, "65:65:", nil}, "80:80:")
	low("65:65:", "a claim from before the release has skipped events")
}

// A tenant is held only next to others, or until it has caught up: although one of its
// aggregates always has an event on its way.
func TestAHeldTenantIsReleased(t *testing.T) {
	t.Parallel()
	a, f, rates := newFollowUps(), newInFlight(), newTenantRates(1000, "")
	hold := func() *heldTenant {
		a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
		a.holdSaved("x")
		a.claimed(queue.Claimed{Seen: "91:91:"}, toClaim{exclusions{held: []string{"x"}}, "90:90:", nil}, "90:90:")
		h, _, _ := a.turn(rates, f, 1)
		if h == nil || a.scanLow != "" {
			t.Fatalf("held %v, a scan from %q", h, a.scanLow)
		}
		return h
	}
	h := hold()
	h.published.list = []followUp{{low: "80:80:", tenant: "x"}}
	a.releaseCaughtUp(f, false, time.Now())
	if a.due().held || a.scanLow != "90:90:" || len(a.published.list) != 1 || a.due().claimAt.IsZero() {
		t.Errorf("alone: held %t, a scan from %q, %d versions", a.due().held, a.scanLow, len(a.published.list))
	}
	a.published.list, a.scanLow = nil, ""
	h = hold()
	a.turnScanned(h, queue.Page{Done: true}, nil)
	h.published.list = []followUp{{low: "80:80:", tenant: "x"}}
	a.releaseCaughtUp(f, true, time.Now())
	if !a.due().held {
		t.Error("released before it has caught up for some time")
	}
	later := time.Now().Add(caughtUpFor)
	a.withoutTurns(later)
	if !h.saved.at.Equal(later) {
		t.Error("it saves up during a time without turns")
	}
	a.releaseCaughtUp(f, true, time.Now().Add(2*caughtUpFor-time.Second))
	if !a.due().held {
		t.Error("released after a time without turns")
	}
	a.releaseCaughtUp(f, true, time.Now().Add(2*caughtUpFor+time.Second))
	if a.due().held || len(a.published.list) != 1 {
		t.Error("not released")
	}
}

// A tenant that has had no turn, since its rate allowed none, is not released: nothing tells whether
// it has caught up.
func TestAHeldTenantWithoutTurnsStaysHeld(t *testing.T) {
	t.Parallel()
	a, f := newFollowUps(), newInFlight()
	a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.hold([]string{"x"})
	h := a.heldTenant("x")
	h.began, h.behindAt = true, time.Now().Add(-2*caughtUpFor)
	h.published.add(followUp{low: "80:80:", tenant: "x"}, time.Now())
	if turn, _, _ := a.turn(newTenantRates(1, ""), f, 1); turn != nil {
		t.Fatal("the test shows nothing: a turn")
	}
	a.releaseCaughtUp(f, true, time.Now())
	if !a.due().held {
		t.Error("released")
	}
}

// Ten tenants are held, each with a backlog from an outage, and write on, each less than its rate.
// They catch up, and are released, although together they write more than the rate of one. A relay
// on a busy machine makes less than the 1,000 events a second that all may.
func TestManyHeldTenantsCatchUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	put := func(name string, each int) {
		b.exec(t, `
			INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
			SELECT gen_random_uuid(), 'video', $1 || '-' || k || '-' || a, 'VideoUpdated', 1, '', 't' || k
			  FROM generate_series(1, $2::int) a, generate_series(1, 10) k ORDER BY a, k`, name, each)
	}
	put("first", 1)
	r := b.startAt(t, 100)
	b.poll(t, func() bool { return b.count(t, unpublished) == 0 }, "nothing leaves")
	put("backlog", 300)
	for k := range 10 { // on a slow machine no tenant is over its rate
		r.followUps.hold([]string{fmt.Sprint("t", k+1)})
	}
	n := 0
	writes := time.NewTicker(200 * time.Millisecond)
	defer writes.Stop()
	b.poll(t, func() bool {
		<-writes.C
		n++
		put(fmt.Sprint("new", n), 3)
		r.Wake()
		return r.followUps.heldTenants() == 0
	}, "the tenants do not catch up")
	if left := b.count(t, unpublished); left > 1000 {
		t.Errorf("%d events are left of tenants that were released, of a backlog of 3,000", left)
	}
}

// Two relays have each met a tenant once. It stops to write, and they no longer take it for
// active, although each tells the other one of the tenants that it has met.
func TestASilentTenantIsForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	relays := [...]*tenantRates{newTenantRates(1000, ""), newTenantRates(1000, "")}
	for _, r := range relays {
		r.claimed(batchFor("quiet", 1), len(relays), now)
	}
	for range 3 * int(activeFor/time.Second) {
		now = now.Add(time.Second)
		for i, r := range relays {
			r.claimed(batchFor("busy", 10), len(relays), now)
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

// An event that a turn had to leave is looked for after a pause, each time, and also where no
// claim had seen it yet.
func TestATurnLooksLaterForEventsThatItLeft(t *testing.T) {
	t.Parallel()
	a, rates := newFollowUps(), newTenantRates(1000, "")
	a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.holdSaved("x")
	h := a.heldTenant("x")
	a.left(h, "50:50:", a.met.life, "120:120:", time.Now().Add(-time.Second))
	if got, _, _ := a.turn(rates, newInFlight(), 1); got == nil || !slices.Equal(h.parts, queue.TxSnapshot("50:50:").Until("120:120:")) {
		t.Fatalf("a scan of %v, want one of all that the turn saw", h.parts)
	}
	a.turnScanned(h, queue.Page{Done: true}, nil)
	a.left(h, "50:50:", a.met.life, "121:121:", time.Now().Add(time.Hour))
	if got, _, _ := a.turn(rates, newInFlight(), 1); got != nil {
		t.Errorf("a second scan at once, of %v", h.parts)
	}
	if a.low(newInFlight()) != "50:50:" {
		t.Error("the relay's low does not cover the event")
	}
}

// The published versions of a held tenant share a claim, unless an event was seen behind one.
func TestPublishedVersionsOfAHeldTenantShareAClaim(t *testing.T) {
	t.Parallel()
	for _, followed := range []bool{false, true} {
		a, rates := newFollowUps(), newTenantRates(1000, "")
		a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
		a.holdSaved("x")
		batch := batchFor("x", 1)[0]
		u := &unsettled{
			publishResult: publishResult{batch: &leasedBatch{events: batch, lowBehind: "90:90:"}},
			settlement:    queue.Settlement{Batch: batch, Published: 1},
		}
		a.settled([]*unsettled{u}, followed)
		if h, _, after := a.turn(rates, newInFlight(), 1); (h != nil && len(after) == 1) != followed {
			t.Errorf("followed %t: a turn of %v", followed, after)
		}
		if at := a.heldTenant("x").published.dueAt; !followed && time.Until(at) <= followUpDelay {
			t.Errorf("as soon as for other tenants, in %s", time.Until(at))
		}
		a.heldTenant("x").published.dueAt = time.Now()
		if _, _, after := a.turn(rates, newInFlight(), 1); (len(after) == 1) == followed {
			t.Errorf("followed %t: later a turn of %v", followed, after)
		}
	}
}

// A scan for all goes through an old part of the table while a tenant is held. The tenant's own
// scan reads the pages that it was skipped in, and not all that came before; its new events
// come first.
func TestAHeldTenantReadsSkippedPages(t *testing.T) {
	t.Parallel()
	a, rates := newFollowUps(), newTenantRates(1000, "")
	a.claimed(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.addScan("5:5:", time.Now())
	from, _ := a.beginScan()
	all := from.Since()
	page := queue.TxSnapshot("40:40:").Until("51:51:")[0]
	a.holdSaved("x")
	a.pageScanned(page.Through(queue.Page{Next: queue.TxSnapshot("46:46:").Since()[0]}), exclusions{held: []string{"x"}})
	a.pageScanned(queue.TxSnapshot("46:46:").Until("51:51:")[0], exclusions{held: []string{"x"}})
	a.endScan()
	if got := a.low(newInFlight()); got != "5:5:" {
		t.Errorf("low %q: it does not cover the skipped pages", got)
	}
	a.claimed(queue.Claimed{Seen: "95:95:"}, toClaim{exclusions{held: []string{"x"}}, "90:90:", nil}, "90:90:")
	if h, _, _ := a.turn(rates, newInFlight(), 1); h == nil || !slices.Equal(h.parts, append(queue.TxSnapshot("90:90:").Until("95:95:"), page)) {
		t.Errorf("a scan of %v, of %v", h.parts, all)
	}
	if got := a.low(newInFlight()); got != "5:5:" {
		t.Errorf("low %q while the tenant's scan runs", got)
	}
	a.endScan()
	a.turnScanned(a.heldTenant("x"), queue.Page{Done: true}, nil)
	a.turnScanned(a.heldTenant("x"), queue.Page{Done: true}, nil)
	a.addScan("5:5:", time.Now())
	a.beginScan()
	a.pageScanned(page, exclusions{held: []string{"x"}})
	a.release(a.heldTenant("x"))
	if a.scanLow != "5:5:" {
		t.Errorf("released: a scan from %q", a.scanLow)
	}
}

// A turn reads about as many rows as it claims, and more where few rows are the tenant's.
func TestPagesOfAHeldTenantAdapt(t *testing.T) {
	t.Parallel()
	const limit = 20
	h := &heldTenant{}
	step := func(claimed int, truncated bool) int {
		rows := h.pageRows(limit)
		h.adaptRows(rows, queue.Page{Claimed: queue.Claimed{Truncated: truncated}}, claimed, limit)
		return h.pageRows(limit)
	}
	var sizes []int
	for range 6 { // a tenth of the rows
		sizes = append(sizes, step(1, false))
	}
	for range 6 { // all of them
		sizes = append(sizes, step(limit, true))
	}
	want := []int{40, 80, 160, 320, turnRows, turnRows, 250, 125, 62, 31, limit, limit}
	if !slices.Equal(sizes, want) || step(limit, false) != limit {
		t.Errorf("pages of %v rows, want %v", sizes, want)
	}
	slow := &heldTenant{} // its rate allows one event a turn
	for range 10 {
		slow.adaptRows(slow.pageRows(1), queue.Page{}, 0, 1)
	}
	if rows := slow.pageRows(1); rows != turnRows {
		t.Errorf("ten pages without an event of a tenant with a low rate are followed by a page of %d rows", rows)
	}
}

// A turn whose page has one event of the tenant among those of another one is followed by a longer
// page.
func TestATurnAdaptsItsPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	r.followUps.holdSaved("x")
	b.fill(t, "x", 1, 1)
	b.fill(t, "y", 3*turnRows, 1)
	r.step(t.Context(), new(claimSchedule), claimed) // passes x
	r.tenants.claimed(batchFor("x", 1), 1, time.Now())
	r.tenants.claimed(batchFor("y", 1), 1, time.Now()) // several are active
	if !r.inFlight.reserve(byTurn) {
		t.Fatal("no room")
	}
	if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
		t.Fatal(err)
	}
	h := r.followUps.heldTenant("x")
	if left := int(h.saved.events); h.rows <= left {
		t.Errorf("the next page has %d rows, although the turn had room for %d more events", h.rows, left)
	}
}

// A page that is full of the tenant's events is no longer than the turn, so no page is read twice.
// The second reading of a page finds few events, and makes the next page no longer.
func TestAFullPageIsNotReadAgain(t *testing.T) {
	t.Parallel()
	const limit = 10
	h := &heldTenant{rows: 4 * limit}
	for page, first := range []queue.Page{{Claimed: queue.Claimed{Truncated: true}}, {}, {}} {
		claimed := limit
		if page == 1 {
			claimed = 1 // the others of its rows are on their way
		}
		h.adaptRows(h.pageRows(limit), first, claimed, limit)
	}
	if h.rows != 2*limit || h.pageRows(limit) != 2*limit {
		t.Errorf("a page has %d rows", h.pageRows(limit))
	}
	h.adaptRows(2*limit, queue.Page{}, 1, limit)
	if h.rows != 4*limit {
		t.Errorf("%d rows after a page with one event of the tenant", h.rows)
	}
}

// As long as nothing is behind a tenant's published versions, a turn looks behind more and more of
// them. Once something is behind them, it looks behind no more than it may claim.
func TestATurnLooksBehindManyVersions(t *testing.T) {
	t.Parallel()
	const versions = 800
	b := newBench(t)
	r, claimed := b.registered(t)
	b.fill(t, "x", versions, 1)
	b.exec(t, `UPDATE outbox SET published_at = now()`)
	r.followUps.holdSaved("x")
	h := r.followUps.heldTenant("x")
	r.tenants.claimed(batchFor("x", 1), 1, time.Now())
	r.tenants.claimed(batchFor("y", 1), 1, time.Now()) // several are active
	follow := func(aggregate int) {
		at := queue.AggregateVersion{AggregateType: "video", AggregateID: fmt.Sprint("x-", aggregate), Version: 1}
		h.follow(followUp{AggregateVersion: at, low: "100:100:", tenant: "x"}, time.Now())
	}
	turns := func() (n, most int) {
		for ; len(h.published.list) > 0; n++ {
			most = max(most, h.versions)
			h.saved = savings{events: perTurn(DefaultTenantRate), at: time.Now()} // a slow machine must not save up more
			if !r.inFlight.reserve(byTurn) {
				t.Fatal("no room")
			}
			if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
				t.Fatal(err)
			}
		}
		return n, most
	}
	for i := range versions {
		follow(i + 1)
	}
	if n, most := turns(); n > 10 || most <= versions/4 {
		t.Errorf("%d turns look behind %d versions; the longest one looked behind %d", n, versions, most)
	}
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		VALUES (gen_random_uuid(), 'video', 'x-1', 'VideoUpdated', 2, '', 'x')`)
	follow(1)
	if n, _ := turns(); n != 1 || h.versions != 0 || r.inFlight.total() != 1 {
		t.Errorf("%d turns; %d events in flight; the next turn takes %d versions", n, r.inFlight.total(), h.versions)
	}
	// Something is behind all of them all at once: the next turns look behind the rest.
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		SELECT gen_random_uuid(), 'video', 'x-' || a, 'VideoUpdated', 2, '', 'x' FROM generate_series(2, 60) a`)
	for i := range 59 {
		follow(i + 2)
	}
	h.versions = versions
	n, _ := turns()
	if claimed := r.inFlight.total() - 1; claimed != 59 || n < 3 {
		t.Errorf("%d turns have claimed %d events, want 59", n, claimed)
	}
	if h.low != "" || h.leftLow != "" || len(h.parts) > 0 {
		t.Errorf("a scan is due, although nothing was left: low %q, %q", h.low, h.leftLow)
	}
	// An event that another session has locked is behind its version, although no turn can claim it.
	b.exec(t, `
		INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, version, payload, tenant_id)
		VALUES (gen_random_uuid(), 'video', 'x-100', 'VideoUpdated', 2, '', 'x')`)
	defer b.lock(t, "x-100", 2)()
	h.pages = 1
	follow(100)
	turns()
	if h.pages != 1 || h.leftLow == "" {
		t.Errorf("%d pages come before the next look behind versions, want 1; low %q", h.pages, h.leftLow)
	}
}

// As long as nothing is behind a tenant's published versions, more and more turns read pages, eight
// in a row at most. Once something is behind them, the two kinds of turns alternate.
func TestFewTurnsLookBehindVersionsInVain(t *testing.T) {
	t.Parallel()
	a, rates, flying := newFollowUps(), newTenantRates(DefaultTenantRate, ""), newInFlight()
	a.hold([]string{"x"})
	h := a.heldTenant("x")
	h.parts = []queue.Cursor{{}}
	turns := func(n, claimed int) (kinds string) {
		for range n {
			h.follow(followUp{low: "100:100:", tenant: "x"}, time.Now())
			h.saved.events = perTurn(DefaultTenantRate)
			_, _, after := a.turn(rates, flying, 1)
			if len(after) == 0 {
				kinds += "p"
				continue
			}
			h.adaptPages(claimed)
			kinds += "b"
		}
		return kinds
	}
	if got, want := turns(27, 0), "bppbppppbppppppppbppppppppb"; got != want {
		t.Errorf("turns %s, want %s", got, want)
	}
	if got, want := turns(13, 1), "ppppppppbpbpb"; got != want {
		t.Errorf("turns %s with something behind the versions, want %s", got, want)
	}
	most := 0
	for range 50 { // pages of many events add no more versions than the claims behind them take
		for range 100 {
			h.follow(followUp{low: "100:100:", tenant: "x"}, time.Now())
		}
		h.saved.events = perTurn(DefaultTenantRate)
		if _, _, after := a.turn(rates, flying, 1); len(after) > 0 {
			h.adaptVersions(len(after), 0)
			h.adaptPages(0)
		}
		most = max(most, len(h.published.list))
	}
	if most > 2*turnRows {
		t.Errorf("%d published versions wait for a claim behind them", most)
	}
	for range 2 * turnRows {
		h.follow(followUp{low: "100:100:", tenant: "x"}, time.Now())
	}
	for claimed := range 2 {
		if got := turns(6, claimed); strings.Contains(got, "bb") {
			t.Errorf("turns %s next to many versions, want a page before each look behind them", got)
		}
	}
	h.parts, h.began = nil, true // without pages nothing else is to be done
	if got, want := turns(2, 0), "bb"; got != want {
		t.Errorf("turns %s without pages, want %s", got, want)
	}
}

// A turn that took one event of each aggregate, because it looked behind many, does not show that the
// tenant has caught up.
func TestATurnThatCutsABatchShortIsFull(t *testing.T) {
	t.Parallel()
	a, now := newFollowUps(), time.Now()
	a.hold([]string{"x"})
	h := a.heldTenant("x")
	for _, want := range []struct {
		perAggregate int
		behind       bool
	}{{2, false}, {1, true}} {
		h.behindAt = time.Time{}
		got := queue.Claimed{Batches: batchFor("x", 1)}
		a.turned(h, claimResult{Claimed: got, claim: queue.Claim{Events: 10, Bytes: claimBytes, PerAggregate: want.perAggregate}}, now)
		if h.behindAt.Equal(now) != want.behind {
			t.Errorf("%d events of an aggregate at most: behind at %s", want.perAggregate, h.behindAt)
		}
	}
}

// A tenant that seldom writes, and then has a claim full of events, is not over its rate.
func TestASingleClaimIsWithinTheRate(t *testing.T) {
	t.Parallel()
	rates, now := newTenantRates(DefaultTenantRate, ""), time.Now()
	rates.claimed(batchFor("other", 1), 1, now)
	rates.claimed(batchFor("seldom", 1), 1, now)
	now = now.Add(10 * time.Second)
	if busy := rates.claimed(batchFor("seldom", sharedEvents), 1, now); len(busy) != 0 {
		t.Errorf("%v are over their rate", busy)
	}
	if busy := rates.claimed(batchFor("seldom", sharedEvents), 1, now); len(busy) != 1 {
		t.Errorf("%v are over their rate, after two claims at the same moment", busy)
	}
}

// Turns leave the database time for others, however long they take.
func TestTurnsHavePauses(t *testing.T) {
	t.Parallel()
	var s turnSchedule
	now, due := time.Now(), dueTimes{registered: true, held: true}
	turn := func(over bool, want action, in time.Duration) {
		t.Helper()
		if todo, _ := s.next(now, due); todo != actTurn {
			t.Fatalf("%v, want a turn", todo)
		}
		now = now.Add(10 * turnEvery)
		s.turned(now, over, 2)
		if todo, at := s.next(now, due); todo != want || at.Sub(now) != in {
			t.Fatalf("%v in %s, want %v in %s", todo, at.Sub(now), want, in)
		}
	}
	turn(true, actIdle, turnEvery)
	now = now.Add(turnEvery)
	for range 2*turnClaims - 1 {
		turn(false, actTurn, 0)
	}
	turn(false, actIdle, turnEvery)
	s.failed(now, io.ErrUnexpectedEOF, outagePause)
	if todo, _ := s.next(now, due); todo != actPause {
		t.Errorf("%v after a failure", todo)
	}
	if todo, _ := new(turnSchedule).next(now, dueTimes{registered: true}); todo != actIdle {
		t.Errorf("%v with no tenant held", todo)
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

// A turn may leave an event behind published versions that no claim of new events has seen yet. The
// tenant's scan reads up to the snapshot of that turn.
func TestAScanOfATenantReadsUpToItsLastTurn(t *testing.T) {
	t.Parallel()
	a := newFollowUps()
	a.hold([]string{"x"})
	h := a.held[0]
	h.low = "10:10:"
	a.turnFollowed(h, nil, "", "90:90:", a.met.life, nil)
	h.begin("50:50:", a.met.life, time.Now())
	if want := queue.TxSnapshot("10:10:").Until("90:90:"); !slices.Equal(h.parts, want) {
		t.Errorf("the scan reads %v, want %v", h.parts, want)
	}
}
