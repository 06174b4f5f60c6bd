package outbox

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// holdSaved holds a tenant that has saved up what it may.
func (f *followUps) holdSaved(name string) {
	f.hold([]string{name})
	f.heldTenant(name).saved.events = tenantEvents
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
	a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.published.list = []followUp{{low: "60:60:", tenant: "x"}, {low: "70:70:", tenant: "y"}}
	a.holdSaved("x")
	low("60:60:", "published versions go with the tenant")
	if todo := a.take(10); len(todo.after) != 1 || len(todo.held) != 1 {
		t.Fatalf("a claim has %d versions and skips %v", len(todo.after), todo.held)
	}
	a.claimEnded(queue.Claimed{Seen: "91:91:"}, toClaim{exclusions{held: []string{"x"}}, "75:75:", nil}, "70:70:")
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
	a.turnFollowed(h, nil, datedLow{}, "92:92:", nil)
	low("75:75:", "followed; the scan is of what a claim has skipped")
	a.claimEnded(queue.Claimed{Seen: "92:92:"}, toClaim{exclusions{held: []string{"x"}}, "91:91:", nil}, "91:91:")
	a.turnScanned(h, queue.Page{Done: true}, nil)
	low("91:91:", "scanned, and a claim has skipped events since")
	a.left(h, datedLow{"72:72:", a.met.life}, "92:92:", time.Now().Add(time.Hour))
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
	a.claimEnded(queue.Claimed{Seen: "93:93:"}, toClaim{exclusions{held: []string{"x"}}, "65:65:", nil}, "80:80:")
	low("65:65:", "a claim from before the release has skipped events")
}

// A tenant is held only next to others, or until it has caught up: although one of its
// aggregates always has an event on its way.
func TestAHeldTenantIsReleased(t *testing.T) {
	t.Parallel()
	a, f, rates := newFollowUps(), newInFlight(), newTenantRates(1000, "")
	hold := func() *heldTenant {
		a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
		a.holdSaved("x")
		a.claimEnded(queue.Claimed{Seen: "91:91:"}, toClaim{exclusions{held: []string{"x"}}, "90:90:", nil}, "90:90:")
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
	a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
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
	// Those that they have written meanwhile may be more on a busy machine.
	if left := b.count(t, unpublished+` AND aggregate_id LIKE 'backlog-%'`); left > 300 {
		t.Errorf("%d events are left of the 3,000 that the tenants had when they were held", left)
	}
}

// A scan for all goes through an old part of the table while a tenant is held. The tenant's own
// scan reads the pages that it was skipped in, and not all that came before; its new events
// come first.
func TestAHeldTenantReadsSkippedPages(t *testing.T) {
	t.Parallel()
	a, rates := newFollowUps(), newTenantRates(1000, "")
	a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.addScan("5:5:", time.Now())
	from := a.beginScan().snapshot
	all := from.Since()
	page := queue.TxSnapshot("40:40:").Until("51:51:")[0]
	a.holdSaved("x")
	a.pageScanned(page.Through(queue.Page{Next: queue.TxSnapshot("46:46:").Since()[0]}), exclusions{held: []string{"x"}})
	a.pageScanned(queue.TxSnapshot("46:46:").Until("51:51:")[0], exclusions{held: []string{"x"}})
	a.endScan()
	if got := a.low(newInFlight()); got != "5:5:" {
		t.Errorf("low %q: it does not cover the skipped pages", got)
	}
	a.claimEnded(queue.Claimed{Seen: "95:95:"}, toClaim{exclusions{held: []string{"x"}}, "90:90:", nil}, "90:90:")
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
