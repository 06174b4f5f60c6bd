package outbox

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// An event that a turn had to leave is looked for after a pause, each time, and also where no
// claim had seen it yet.
func TestATurnLooksLaterForEventsThatItLeft(t *testing.T) {
	t.Parallel()
	a, rates := newFollowUps(), newTenantRates(1000, "")
	a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
	a.holdSaved("x")
	h := a.heldTenant("x")
	a.left(h, datedLow{"50:50:", a.met.life}, "120:120:", time.Now().Add(-time.Second))
	if got, _, _ := a.turn(rates, newInFlight(), 1); got == nil || !slices.Equal(h.parts, queue.TxSnapshot("50:50:").Until("120:120:")) {
		t.Fatalf("a scan of %v, want one of all that the turn saw", h.parts)
	}
	a.turnScanned(h, queue.Page{Done: true}, nil)
	a.left(h, datedLow{"50:50:", a.met.life}, "121:121:", time.Now().Add(time.Hour))
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
		a.claimEnded(queue.Claimed{Seen: "90:90:"}, toClaim{}, "90:90:")
		a.holdSaved("x")
		batch := batchFor("x", 1)[0]
		u := &unsettled{
			publishResult: publishResult{batch: &leasedBatch{events: batch, lowBehind: datedLow{snapshot: "90:90:"}}},
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
	r.tenants.count(batchFor("x", 1), 1, time.Now())
	r.tenants.count(batchFor("y", 1), 1, time.Now()) // several are active
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
	r.tenants.count(batchFor("x", 1), 1, time.Now())
	r.tenants.count(batchFor("y", 1), 1, time.Now()) // several are active
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

// A turn may leave an event behind published versions that no claim of new events has seen yet. The
// tenant's scan reads up to the snapshot of that turn.
func TestAScanOfATenantReadsUpToItsLastTurn(t *testing.T) {
	t.Parallel()
	a := newFollowUps()
	a.hold([]string{"x"})
	h := a.held[0]
	h.low = "10:10:"
	a.turnFollowed(h, nil, datedLow{}, "90:90:", nil)
	h.begin("50:50:", a.met.life, time.Now())
	if want := queue.TxSnapshot("10:10:").Until("90:90:"); !slices.Equal(h.parts, want) {
		t.Errorf("the scan reads %v, want %v", h.parts, want)
	}
}
