package outbox

import (
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
func (a *followUps) meetsAnotherServer() {
	a.heartbeatWritten(queue.HeartbeatResult{Low: newFloor, Seen: "9:9:", Server: firstServer.Add(time.Hour)}, true)
	a.beginScan()
	a.endScan()
}

// Work that was begun in a former life of the server is covered by the snapshot with which the relay has begun the present one.
func TestTheLowOfWorkOfAFormerLife(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(a *followUps, f *inFlight){
		"search for probes": func(a *followUps, _ *inFlight) { a.setProbeLow(formerLow, a.met.life) },
		"batch": func(a *followUps, f *inFlight) {
			f.batches[uuid.New()] = &leasedBatch{low: formerLow, life: a.met.life}
		},
		"handover": func(a *followUps, f *inFlight) { f.handovers[&Handover{low: formerLow, life: a.met.life}] = struct{}{} },
		"claim":    func(a *followUps, _ *inFlight) { a.take(1) },
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
		h := &leasedBatch{events: queue.Batch{{Event: event("a", 1)}}, low: formerLow, life: a.met.life}
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
	a.claimed(queue.Claimed{Seen: "2000000:2000000:", Server: firstServer}, todo, formerLow)
	if a.seen != "9:9:" {
		t.Errorf("new events are those since %s", a.seen)
	}
	if a.scanLow != newFloor || a.pausedLow != newFloor || a.heldTenant("x").low != newFloor {
		t.Errorf("scans from %q, %q and %q", a.scanLow, a.pausedLow, a.heldTenant("x").low)
	}
}

// A claim is answered by another server than the one whose snapshots it was sent with. Its snapshot does not cover what follows
// the batch.
func TestABatchThatAnotherServerHasClaimed(t *testing.T) {
	t.Parallel()
	for server, want := range map[time.Time]queue.TxSnapshot{firstServer: "20:20:", firstServer.Add(time.Hour): "10:10:"} {
		f := newInFlight()
		f.reserve(byClaim)
		c := claimResult{low: "10:10:", claim: queue.Claim{Events: claimEvents, PerAggregate: minPerAggregate, Bytes: claimBytes}}
		c.Claimed = queue.Claimed{Batches: []queue.Batch{{{Event: event("a", 1)}}}, Seen: "20:20:", Server: server}
		if h := f.add(c)[0]; h.lowBehind != want {
			t.Errorf("behind the batch: %s, want %s", h.lowBehind, want)
		}
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
		if err := r.writeHeartbeat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
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
		if h.life != want || want == 0 {
			t.Errorf("%s: begun in the life %d, want %d", what, h.life, want)
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
	r.followUps.scheduleScan(queue.Beginning, time.Now())
	s.started(r.followUps.beginScan())
	probes := &probeScan{}
	if _, _, err := r.claimPaused(t.Context(), r.claimLimits(exclusions{}), probes, former); err != nil {
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
	if probes.life != former {
		t.Errorf("search for probes: begun in the life %d", probes.life)
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
