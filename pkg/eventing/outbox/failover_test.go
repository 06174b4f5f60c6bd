package outbox

import (
	"context"
	"errors"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The tests of this file are histories that an exhaustive search through a model of the relays has found.
// In all of them the database's server is replaced.

// The former server has executed a claim whose answer comes after the relay has met another server, has scanned, and has written
// its low. If the relay dies before the answer, others find the event only by the low.
func TestTheLowCoversAClaimThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	todo := r.followUps.take(1)
	if c, err := r.queue.ClaimNew(t.Context(), r.claimLimits(todo.exclusions), todo.seen, nil); err != nil || len(c.Batches) != 1 {
		t.Fatal(c, err)
	}
	r.beforeFailover()
	for range 2 {
		beat(t, r)
		r.scanDue(t, claimed)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox JOIN outbox_relays ON NOT pg_visible_in_snapshot(xact, low)`); n != 1 {
		t.Errorf("the low covers %d of 1 events", n)
	}
	r.claimLost(errors.New("no answer"))
	r.followUps.giveBack(todo)
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("the answer is lost, and nothing looks for the event")
	}
}

// A relay that has not met the present server claims nothing there, because its row may have a later low than the relay: then
// no row would cover the event if the relay died. The refusal makes the relay meet the server.
func TestAnotherServerRefusesClaims(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	r.settleAll(t, publishResult{batch: <-claimed, report: report{published: 1}})
	r.followUps.holdSaved("busy")
	tenant := r.followUps.heldTenant("busy")
	tenant.follow(r.followUps.published.list[0], time.Now())
	r.tenants.changed = time.Now()
	r.beforeFailover()
	b.append(t, "a", 2, 2)
	page := newScanSchedule()
	page.started(datedLow{queue.Beginning, r.followUps.met.life})
	turn := func() error { return r.takeTurn(t.Context(), &turnSchedule{}, claimed) }
	for name, claim := range map[string]struct {
		by claimant
		do func() error
	}{
		"new events":          {byClaim, func() error { return r.claimNew(t.Context(), &claimSchedule{}, nil, claimed) }},
		"page":                {byScan, func() error { return r.scan(t.Context(), page, actScanPage, claimed) }},
		"sweep":               {byScan, func() error { return r.scan(t.Context(), newScanSchedule(), actSweepPage, claimed) }},
		"retries":             {byScan, func() error { return r.scan(t.Context(), newScanSchedule(), actRetries, claimed) }},
		"turn behind version": {byTurn, turn},
		"page of a turn": {byTurn, func() error {
			tenant.published, tenant.low = versions{}, queue.Beginning
			return turn()
		}},
		"candidates": {byClaim, func() error {
			_, _, err := r.claimPaused(t.Context(), r.claimLimits(r.followUps.exclusions()), r.pauses["video"])
			return err
		}},
	} {
		if !r.inFlight.reserve(claim.by) {
			t.Fatalf("%s: no room", name)
		}
		err := claim.do()
		if !errors.Is(err, queue.ErrAnotherServer) {
			t.Errorf("%s: %v", name, err)
		}
		if claim.by != byClaim || name == "candidates" {
			r.inFlight.release()
		}
		r.claimLost(err)
		select {
		case <-r.wakeHeartbeats:
		default:
			t.Errorf("%s: the relay does not meet the server", name)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM outbox WHERE lock_token IS NOT NULL`); n != 0 || len(claimed) != 0 || r.followUps.mayHaveUnknownLeases() {
		t.Errorf("%d events are leased, and %d in flight", n, len(claimed))
	}
	beat(t, r)
	r.followUps.held = nil
	r.scanDue(t, claimed)
	if len(claimed) != 1 {
		t.Errorf("%d events are claimed after a heartbeat", len(claimed))
	}
}

// The relay does not wait for the time of its next heartbeat if a server has refused a claim.
func TestARefusalWakesTheHeartbeats(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, _ := b.handedOver(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.heartbeatLoop(ctx, t.Context()) }()
	r.claimLost(queue.ErrAnotherServer)
	b.poll(t, func() bool { return len(r.wakeHeartbeats) == 0 }, "no heartbeat follows")
	cancel()
	<-done
}

// A failover to a standby without the last commits brings back a lease that the relay has ended. No relay knows of
// it: the others leave it to the relay that has its token.
func TestALeaseThatAFailoverBringsBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	beat(t, r)
	h := <-claimed
	r.settleAll(t, publishResult{batch: h, report: report{published: 1}})
	if n := b.count(t, unpublished); n != 0 || r.followUps.mayHaveUnknownLeases() {
		t.Fatalf("%d events are not marked, or the relay does not know its leases although the server is the same", n)
	}
	b.exec(t, `UPDATE outbox SET published_at = NULL, lock_token = '`+r.token+`', locked_at = now()`)
	r.beforeFailover()
	r.followUps.published = versions{} // a claim has found nothing behind the version
	beat(t, r)
	if r.followUps.low(r.inFlight) == "" || !b.isClaimedLater(t, r, claimed) {
		t.Error("the event stays pending, and so do all events of its aggregate")
	}
}

// A relay has an event in flight as a retry, and a failover to a standby without the last commits loses the mark of the
// retry. The relay hands the event back, and claims of retries do not find it.
func TestAFailoverLosesTheMarkOfARetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	r.settleAll(t, publishResult{batch: <-claimed, report: report{err: errors.New("an outage")}})
	r.inFlight.reserve(byScan)
	if err := r.scan(t.Context(), newScanSchedule(), actRetries, claimed); err != nil || len(claimed) != 1 {
		t.Fatal(err, len(claimed))
	}
	r.beforeFailover()
	h := <-claimed
	h.low.life = r.followUps.met.life
	b.exec(t, `UPDATE outbox SET next_retry_at = NULL, lock_token = NULL, locked_at = NULL`)
	beat(t, r)
	r.scanDue(t, claimed)
	r.settleAll(t, publishResult{batch: h})
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("the event is left to the sweep")
	}
}

// A transaction of the new server hands its event over before the relay has met that server. The snapshot of the
// handover is of the former server, whose transactions had higher ids. The relay's row must cover the event.
func TestAHandoverBeforeTheRelayMeetsANewServer(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		b := newBench(t)
		r, claimed := b.handedOver(t)
		r.followUps.seen = "1000000:1000000:"
		r.beforeFailover()
		if h := b.handOver(t, r, event("a", 1)); committed && (!h.Committed() || len(claimed) != 1) {
			t.Fatal("not handed over")
		}
		for _, when := range []string{"at the first heartbeat", "when the scans are through"} {
			beat(t, r)
			if n := b.count(t, `SELECT count(*) FROM outbox JOIN outbox_relays ON NOT pg_visible_in_snapshot(xact, low)`); n != 1 {
				t.Errorf("committed %v: %s the relay's row does not cover the event", committed, when)
			}
			r.followUps.unknownLeasesUntil = time.Time{} // the broker takes its time, and the leases are renewed
			r.scanDue(t, claimed)
		}
		if committed {
			if h := <-claimed; h.lowBehind != h.low {
				t.Errorf("the low of the event is %v, that of the events behind it is %v", h.low, h.lowBehind)
			}
		}
	}
}

// A relay has published a version when it meets a new server. A claim behind the version is on its way, or none was sent. The
// snapshot of the version is of the former server, whose transactions had higher ids. The relay finds the event behind
// the version, and its row covers the event until it is published.
func TestAVersionOfAFormerServer(t *testing.T) {
	t.Parallel()
	const (
		former  = "1000000:1000000:"
		covered = `SELECT count(*) FROM outbox JOIN outbox_relays ON NOT pg_visible_in_snapshot(xact, low) WHERE published_at IS NULL`
	)
	for name, test := range map[string]struct{ held, onItsWay bool }{
		"claim on its way": {onItsWay: true}, "no claim": {}, "turn on its way": {held: true, onItsWay: true}, "no turn": {held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			wait := b.waitingPool(t)
			r, claimed := b.handedOver(t)
			b.append(t, "a", 1, 1)
			r.claim(t, claimed)
			r.settleAll(t, publishResult{batch: <-claimed, report: report{published: 1}})
			r.followUps.seen, r.followUps.published.list[0].low = former, former
			r.beforeFailover()
			if test.held {
				r.followUps.holdSaved(eventing.DefaultTenant)
				r.tenants.changed = time.Now()
			}
			meet := func() {
				beat(t, r)
			}
			claim := func() error {
				by, do := byClaim, func() error { return r.claimNew(t.Context(), &claimSchedule{}, nil, claimed) }
				if test.held {
					by, do = byTurn, func() error { return r.takeTurn(t.Context(), &turnSchedule{}, claimed) }
				}
				if !r.inFlight.reserve(by) {
					t.Error("no room for a claim")
				}
				err := do()
				if err != nil && test.held {
					r.inFlight.release()
				}
				return err
			}
			if !test.onItsWay {
				b.append(t, "a", 2, 2)
				meet()
			} else {
				arrived, goOn := wait()
				done := make(chan error)
				go func() { done <- claim() }()
				<-arrived
				b.append(t, "a", 2, 2)
				meet()
				goOn()
				if err := <-done; !errors.Is(err, queue.ErrAnotherServer) {
					t.Fatal(err)
				}
			}
			for range 3 {
				if err := claim(); err != nil { // behind the version, as new, or in a page
					t.Fatal(err)
				}
				r.followUps.unknownLeasesUntil = time.Time{} // the broker takes its time, and the leases are renewed
				r.scanDue(t, claimed)
			}
			if len(claimed) != 1 {
				t.Fatalf("%d events are claimed", len(claimed))
			}
			meet()
			if n := b.count(t, covered); n != 1 {
				t.Errorf("the relay's row covers %d events of 1", n)
			}
		})
	}
}

// A claim has found an event while the relay met another server. The event is published, and its version is in a list, before
// the goroutine of the claim notes that the claim has ended. The low of the version is of the former server.
func TestAVersionIsPublishedBeforeItsClaimEnds(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]bool{"all tenants": false, "held tenant": true} {
		a, f := newFollowUps(), newInFlight()
		a.seen = "1000000:1000000:"
		f.reserve(byClaim)
		todo, server := a.take(10), time.Now()
		a.heartbeatWritten(queue.HeartbeatResult{Low: "3:3:", Seen: "9:9:", Server: server}, true)
		a.beginScan()
		a.endScan()
		batch := queue.Batch{{Event: event("a", 1)}} // as many events as the claim may take
		c := queue.Claimed{Batches: []queue.Batch{batch}, Seen: "9:9:"}
		h := f.add(claimResult{Claimed: c, sent: time.Now(), low: datedLow{todo.seen, todo.life}})
		if held {
			a.holdSaved(batch.Tenant())
		}
		a.settled([]*unsettled{published(h[0], 1)}, true)
		f.removeAll(h)
		a.claimEnded(c, todo, todo.seen)
		a.beginScan()
		a.endScan()
		if low := a.low(f); low != "3:3:" {
			t.Errorf("%s: the low is %s, and does not cover what follows the version", name, low)
		}
	}
}

// A relay meets another server after a turn has read which server the relay has met, and before the turn takes the published
// versions. The version was published on the new server, behind the scan of the meeting. The server refuses the turn, and the
// relay keeps the version: nothing else finds the event behind it.
func TestAVersionThatARefusedTurnHasTakenOnTheNewServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	h := <-claimed
	r.beforeFailover()
	r.followUps.holdSaved(eventing.DefaultTenant)
	r.tenants.changed = time.Now()
	former := r.followUps.exclusions()
	former.held = nil
	b.append(t, "a", 2, 2)
	beat(t, r)
	r.scanDue(t, claimed)
	r.settleAll(t, publishResult{batch: h, report: report{published: 1}})
	tenant := r.followUps.heldTenant(eventing.DefaultTenant)
	tenant.published.dueAt, tenant.low, tenant.skipped, tenant.skippedLow = time.Now(), "", nil, "" // its scan is through, too
	turn, _, after := r.followUps.turn(r.tenants, r.inFlight, 1)
	if turn != tenant || len(after) != 1 || len(claimed) != 0 {
		t.Fatalf("%d versions, %d events are claimed", len(after), len(claimed))
	}
	if _, err := r.claimBehind(t.Context(), turn, after, r.claimLimits(former), former.life, claimed); !errors.Is(err, queue.ErrAnotherServer) {
		t.Fatal(err)
	}
	if len(tenant.published.list) != 1 {
		t.Error("the version is forgotten, and the event behind it is left to the sweep")
	}
}

// A turn of a held tenant had to leave an event before the relay met another server. The snapshot of that turn saw a transaction
// whose id the new server has used again, and which is still open there. The relay dies, and another one takes over its low.
func TestATurnHadToLeaveAnEventOfAFormerServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := Append(t.Context(), tx, nil, event("late", 1)); err != nil {
		t.Fatal(err)
	}
	former := pgtest.Value[queue.TxSnapshot](t, tx, `SELECT format('%1$s:%1$s:', pg_current_xact_id()::text::bigint + 1)`)
	r.followUps.holdSaved("busy")
	h := r.followUps.heldTenant("busy")
	h.leftLow, h.leftAt = former, time.Now().Add(time.Hour)
	r.tenants.changed = time.Now()
	r.beforeFailover()
	b.append(t, "a", 1, 1)
	for range 4 {
		beat(t, r)
		r.followUps.unknownLeasesUntil = time.Time{}
		r.scanDue(t, claimed)
		for len(claimed) > 0 {
			r.settleAll(t, publishResult{batch: <-claimed, report: report{published: 1}})
		}
		r.claim(t, claimed)
		busy := batchFor("busy", 1)[0] // so the tenant stays held
		r.inFlight.batches[busy.Head()] = &leasedBatch{events: busy, low: datedLow{r.followUps.seen, r.followUps.met.life}}
		if !r.inFlight.reserve(byTurn) {
			t.Fatal("no room for a turn")
		}
		if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
			t.Fatal(err)
		}
	}
	pgtest.End(t, tx.Commit)
	b.exec(t, `UPDATE outbox_relays SET seen_at = '-infinity'`)
	successor := b.newRelay(t)
	theirs := make(chan *leasedBatch, 10)
	var s claimSchedule
	for range 6 {
		successor.step(t.Context(), &s, theirs)
		successor.scanDue(t, theirs)
	}
	if len(theirs) != 1 {
		t.Errorf("the successor claims %d events of 1: it scans from %s", len(theirs), former)
	}
}
