package outbox

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// firstServer is the server in the life of a new followUps.
var firstServer = time.UnixMicro(0)

// beforeFailover makes the server that the relay has met the predecessor of the present one.
func (r *Relay) beforeFailover() {
	r.registration.last.Server = r.registration.last.Server.Add(-time.Hour)
	r.followUps.met.life = lifeOf(r.registration.last.Server)
}

const (
	formerLow = "1000000:1000000:" // the ids of the former server's transactions were higher
	newFloor  = "3:3:"
)

// meetsAnotherServer makes the relay meet another server, and completes the scan of the meeting.
func (f *followUps) meetsAnotherServer() {
	f.heartbeatWritten(queue.HeartbeatResult{Low: newFloor, Seen: "9:9:", Server: firstServer.Add(time.Hour)}, true)
	f.beginScan()
	f.endScan()
}

// Work that was begun in a former life of the server is covered by the snapshot with which the relay has begun the present one.
func TestTheLowOfWorkOfAFormerLife(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(a *followUps, f *inFlight){
		"batch": func(a *followUps, f *inFlight) {
			f.batches[uuid.New()] = &leasedBatch{low: datedLow{formerLow, a.met.life}}
		},
		"handover": func(a *followUps, f *inFlight) {
			f.handovers[&Handover{low: datedLow{formerLow, a.met.life}}] = struct{}{}
		},
		"claim": func(a *followUps, _ *inFlight) { a.take(1) },
	} {
		a, f := newFollowUps(), newInFlight()
		a.seen = formerLow
		begin(a, f)
		a.meetsAnotherServer()
		if low := a.low(f); low != newFloor {
			t.Errorf("%s: the low is %s", name, low)
		}
	}
}

// A snapshot of a former life saw the transaction 4, which the present life has begun again, and which is open in its
// snapshots. No list of the relay keeps such a snapshot, whenever it was noted. Otherwise it would be the low of the relay,
// because it is the earliest by its xmax.
func TestNoListKeepsASnapshotOfAFormerLife(t *testing.T) {
	t.Parallel()
	const former, floor, present = "5:5:", "4:8:4", "4:9:4"
	later := time.Now().Add(time.Hour)
	tenant := func(a *followUps) *heldTenant { a.holdSaved("x"); return a.heldTenant("x") }
	for name, note := range map[string]func(a *followUps) (late func()){
		"scheduled scan": func(a *followUps) func() { a.addScan(former, later); return nil },
		"running scan":   func(a *followUps) func() { a.addScan(former, later); a.beginScan(); return nil },
		"scan that skips a type": func(a *followUps) func() {
			a.addScan(former, later)
			a.beginScan()
			return func() { a.pageScanned(queue.Cursor{}, exclusions{paused: []string{"video"}}) }
		},
		"scan that skips a tenant": func(a *followUps) func() {
			a.addScan(former, later)
			a.beginScan()
			tenant(a)
			return func() { a.pageScanned(queue.Cursor{}, exclusions{held: []string{"x"}}) }
		},
		"scan that must leave an event": func(a *followUps) func() {
			begun := a.met.life
			return func() { a.scheduleScan(datedLow{former, begun}, later) }
		},
		"skipped type":   func(a *followUps) func() { a.noteSkippedTypes(former, "video"); return nil },
		"skipped tenant": func(a *followUps) func() { tenant(a); a.noteSkippedTenants(former, []string{"x"}); return nil },
		"skipped part": func(a *followUps) func() {
			a.scanning = datedLow{former, a.met.life}
			tenant(a)
			a.pageScanned(queue.Cursor{}, exclusions{held: []string{"x"}})
			return nil
		},
		"scan of a tenant": func(a *followUps) func() {
			h := tenant(a)
			h.low = former
			h.begin(former, a.met.life, time.Now())
			return func() { a.turnScanned(h, queue.Page{}, []string{"video"}) }
		},
		"turn that must leave an event": func(a *followUps) func() {
			a.left(tenant(a), datedLow{former, a.met.life}, former, later)
			return nil
		},
		"late turn that must leave an event": func(a *followUps) func() {
			h, begun := tenant(a), a.met.life
			return func() { a.left(h, datedLow{former, begun}, former, later) }
		},
		"late turn that skips a type": func(a *followUps) func() {
			h, begun := tenant(a), a.met.life
			return func() { a.turnFollowed(h, nil, datedLow{former, begun}, former, []string{"video"}) }
		},
		"released tenant": func(a *followUps) func() {
			h := tenant(a)
			h.low = former
			h.begin(former, a.met.life, time.Now())
			return func() { a.release(h) }
		},
	} {
		a, f := newFollowUps(), newInFlight()
		a.seen = former
		late := note(a)
		a.heartbeatWritten(queue.HeartbeatResult{Low: floor, Seen: present, Server: firstServer.Add(time.Hour)}, true)
		for range 2 {
			if low := a.low(f); low != floor && low != present {
				t.Errorf("%s: the low is %s", name, low)
			}
			if late != nil {
				late()
				late = nil
			}
		}
		a.beginScan()
		a.endScan()
		if low := a.low(f); low != floor && low != present {
			t.Errorf("%s: after the scan of the meeting the low is %s", name, low)
		}
	}
}

// The sweep has found an event that no low covers. It stays covered by the batch alone, in any life of the server.
func TestASweptEventOfAFormerLife(t *testing.T) {
	t.Parallel()
	a, f := newFollowUps(), newInFlight()
	a.seen = formerLow
	h := &leasedBatch{low: datedLow{queue.Beginning, a.met.life}}
	f.batches[uuid.New()] = h
	a.meetsAnotherServer()
	if low := a.low(f); low != queue.Beginning {
		t.Errorf("the low is %s", low)
	}
	a.scanFor(h, time.Now())
	if a.scanLow != queue.Beginning {
		t.Errorf("its lease is lost: a scan from %s", a.scanLow)
	}
}

// A batch of a former life is handed back, or its lease is lost.
func TestAScanForABatchOfAFormerLife(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(a *followUps, h *leasedBatch){
		"handed back": func(a *followUps, h *leasedBatch) { a.settled([]*unsettled{published(h, 0)}, false) },
		"handed back, a retry": func(a *followUps, h *leasedBatch) {
			h.events[0].Retry = true
			a.settled([]*unsettled{published(h, 0)}, false)
		},
		"lost": func(a *followUps, h *leasedBatch) { a.scanFor(h, time.Now()) },
	} {
		a := newFollowUps()
		a.seen = formerLow
		h := &leasedBatch{events: queue.Batch{{Event: event("a", 1)}}, low: datedLow{formerLow, a.met.life}}
		a.meetsAnotherServer()
		end(a, h)
		if a.scanLow != newFloor {
			t.Errorf("%s: a scan from %q", name, a.scanLow)
		}
	}
}

// The former server has answered a claim before it failed, and the relay reads the answer when it has met the new one. The
// snapshot of the claim means nothing there, and so do those from which the relay looks for the events that the claim has skipped.
func TestAnAnswerOfAFormerLife(t *testing.T) {
	t.Parallel()
	a := newFollowUps()
	a.seen = formerLow
	a.holdSaved("x")
	todo := a.take(1, "video")
	a.meetsAnotherServer()
	a.claimEnded(queue.Claimed{Seen: "2000000:2000000:"}, todo, formerLow)
	if a.seen != "9:9:" {
		t.Errorf("new events are those since %s", a.seen)
	}
	if a.scanLow != newFloor || a.skippedTypes["video"] != newFloor || a.heldTenant("x").low != newFloor {
		t.Errorf("scans from %q, %q and %q", a.scanLow, a.skippedTypes["video"], a.heldTenant("x").low)
	}
}

// All work remembers the life in which it was begun. A scan is begun once, for all its pages.
func TestWorkRemembersItsLife(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	now := func() life { return r.followUps.met.life }
	meet := func() {
		t.Helper()
		beat(t, r)
		r.followUps.unknownLeasesUntil = time.Time{}
	}
	version := int64(0)
	write := func() { version++; b.append(t, "a", version, version) }
	expect := func(want life, what string) *leasedBatch {
		t.Helper()
		if len(claimed) != 1 {
			t.Fatalf("%s: %d batches", what, len(claimed))
		}
		h := <-claimed
		if h.low.life != want || want == 0 {
			t.Errorf("%s: begun in the life %d, want %d", what, h.low.life, want)
		}
		return h
	}
	publish := func(h *leasedBatch) { r.settleAll(t, publishResult{batch: h, report: report{published: 1}}) }

	write()
	r.claim(t, claimed)
	publish(expect(now(), "claim"))

	version++
	h := b.handOver(t, r, event("a", version))
	h.Committed()
	publish(expect(now(), "handover"))
	version++
	h = b.handOver(t, r, event("a", version))
	r.inFlight.handBack(h)
	r.settleAll(t, publishResult{batch: expect(now(), "handover that is given up")})
	r.scanDue(t, claimed)
	publish(expect(now(), "scan"))

	r.beforeFailover()
	former := now()
	s := newScanSchedule()
	r.followUps.scheduleScan(datedLow{queue.Beginning, former}, time.Now())
	s.started(r.followUps.beginScan())
	probes := r.pauses["video"]
	if _, _, err := r.claimPaused(t.Context(), r.claimLimits(r.followUps.exclusions()), probes); !errors.Is(err, queue.ErrAnotherServer) {
		t.Fatal(err)
	}
	meet()
	write()
	if !r.inFlight.reserve(byScan) {
		t.Fatal("no room")
	}
	if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
		t.Fatal(err)
	}
	publish(expect(former, "page of a scan"))
	if probes.scan.low.life != former {
		t.Errorf("search for probes: begun in the life %d", probes.scan.low.life)
	}

	r.followUps.holdSaved(eventing.DefaultTenant)
	r.tenants.changed = time.Now()
	turn := func() {
		t.Helper()
		if !r.inFlight.reserve(byTurn) {
			t.Fatal("no room")
		}
		if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
			t.Fatal(err)
		}
	}
	write()
	turn()
	publish(expect(now(), "turn behind a version"))
	tenant := r.followUps.held[0]
	tenant.published = versions{}
	r.beforeFailover()
	tenant.low = queue.Beginning
	tenant.begin(formerLow, now(), time.Now())
	former = now()
	meet()
	write()
	turn()
	expect(former, "turn in a page")
}
