package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The tests of this file are histories that an exhaustive search through a model of the relays has found.

// waitingPool makes relays use a pool whose next connection waits. wait begins that; the connection goes
// on when the test calls goOn.
func (b *bench) waitingPool(t *testing.T) (wait func() (arrived chan struct{}, goOn func())) {
	t.Helper()
	type pause struct{ arrived, goOn chan struct{} }
	var next atomic.Pointer[pause]
	config := b.db.Config()
	config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) {
		if p := next.Swap(nil); p != nil {
			close(p.arrived)
			<-p.goOn
		}
		return true, nil
	}
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b.relayDB = db
	return func() (arrived chan struct{}, goOn func()) {
		p := &pause{make(chan struct{}), make(chan struct{})}
		next.Store(p)
		goOn = sync.OnceFunc(func() { close(p.goOn) })
		t.Cleanup(goOn)
		return p.arrived, goOn
	}
}

// isClaimedLater reports whether scans alone claim an event, when its lease has run out.
func (b *bench) isClaimedLater(t *testing.T, r *Relay, claimed chan *leasedBatch) bool {
	t.Helper()
	for range 10 {
		if !r.scanDue(t, claimed) || len(claimed) > 0 {
			break
		}
		b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s' WHERE lock_token IS NOT NULL`)
	}
	return len(claimed) > 0
}

// A relay takes over a dead relay while it has an event in flight that is older than the events of the dead
// one. The low that it writes is its own then. It must look for the events of the dead relay all the same.
func TestATakeoverWithAnOlderLowOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	other, lost := b.handedOver(t)
	for _, relay := range []*Relay{r, other} {
		if err := relay.writeHeartbeat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	b.append(t, "a", 1, 1)
	r.claim(t, claimed)
	<-claimed // the broker takes its time
	other.claim(t, lost)
	b.append(t, "b", 1, 1)
	other.claim(t, lost)
	r.claim(t, claimed)
	if err := other.writeHeartbeat(t.Context(), false); err != nil || len(lost) != 1 || len(claimed) != 0 {
		t.Fatal(len(lost), len(claimed), err)
	}
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '16 s' WHERE token = '`+other.token+`'`)
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM outbox_relays`); n != 1 {
		t.Fatalf("%d relays are left", n)
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() WHERE aggregate_id = 'a'`) // it is renewed
	if !r.scanDue(t, claimed) {
		t.Fatal("the dead relay's row is gone, and no scan looks for its event")
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s' WHERE aggregate_id = 'b'`)
	r.scanDue(t, claimed)
	if len(claimed) != 1 {
		t.Error("the dead relay's event is not claimed when its lease has run out")
	}
}

// A claim waits for a connection. Meanwhile a relay ends with an open handover, this relay takes it over and scans,
// and the handover's transaction commits. The claim still regards that relay as alive, and leaves its lease alone.
func TestARelayEndsWhileAClaimIsOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	wait := b.waitingPool(t)
	r, claimed := b.handedOver(t)
	ending, _ := b.handedOver(t)
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := ending.Handover().Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	arrived, goOn := wait()
	done := make(chan struct{})
	go func() { defer close(done); r.claim(t, claimed) }()
	<-arrived
	ending.deregister(t.Context())
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if !r.scanDue(t, claimed) {
		t.Fatal("the relay that has ended is not taken over")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	goOn()
	<-done
	if n := b.count(t, leased); n != 1 || len(claimed) != 0 {
		t.Fatalf("%d leases, %d claimed", n, len(claimed))
	}
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("the event of a relay that has ended stays pending")
	}
}

// A claim waits for a connection while the relay meets another server. The claim looks for the events since a
// snapshot of the former server. Its own snapshot is not the one from which the next claim looks.
func TestAnotherServerWhileAClaimIsOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	wait := b.waitingPool(t)
	r, claimed := b.handedOver(t)
	r.followUps.seen, r.followUps.server = "1000000:1000000:", r.followUps.server.Add(-time.Hour)
	r.registration.last.Server = r.followUps.server
	arrived, goOn := wait()
	done := make(chan struct{})
	go func() { defer close(done); r.claim(t, claimed) }()
	<-arrived
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.scanDue(t, claimed)
	b.append(t, "a", 1, 1)
	goOn()
	<-done
	r.claim(t, claimed)
	if len(claimed) != 1 {
		t.Error("an event of the new server is neither claimed as new nor scanned for")
	}
}

// A claim waits for a connection while the relay meets another server, scans, and writes its low. The claim still looks for
// the events since an earlier snapshot, so it may lease an event that the relay's next snapshot saw. If the relay dies before the
// answer, others find that event only by the low.
func TestTheLowCoversAClaimThatIsOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	wait := b.waitingPool(t)
	r, claimed := b.handedOver(t)
	other, theirs := b.handedOver(t)
	r.followUps.server = r.followUps.server.Add(-time.Hour)
	r.registration.last.Server = r.followUps.server
	arrived, goOn := wait()
	done := make(chan struct{})
	go func() { defer close(done); r.claim(t, claimed) }()
	<-arrived
	b.append(t, "a", 1, 1)
	other.claim(t, theirs)
	for range 2 {
		if err := r.writeHeartbeat(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.scanDue(t, claimed)
	}
	const covered = `SELECT count(*) FROM outbox o, outbox_relays r WHERE NOT pg_visible_in_snapshot(o.xact, r.low) AND r.token = '`
	if n := b.count(t, covered+r.token+`'`); n != 1 || len(theirs) != 1 {
		t.Errorf("the low covers %d of %d events", n, len(theirs))
	}
	goOn()
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
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	h := <-claimed
	r.settleAll(t, publishResult{batch: h, report: report{published: 1}})
	if n := b.count(t, unpublished); n != 0 || r.followUps.mayHaveUnknownLeases() {
		t.Fatalf("%d events are not marked, or the relay does not know its leases although the server is the same", n)
	}
	b.exec(t, `UPDATE outbox SET published_at = NULL, lock_token = '`+r.token+`', locked_at = now()`)
	r.registration.last.Server = r.registration.last.Server.Add(-time.Hour)
	r.followUps.published = versions{} // a claim has found nothing behind the version
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if r.followUps.low(r.inFlight) == "" || !b.isClaimedLater(t, r, claimed) {
		t.Error("the event stays pending, and so do all events of its aggregate")
	}
}

// A transaction of the new server hands its event over before the relay has met that server. The snapshot of the
// handover is of the former server, whose transactions had higher ids. The relay's row must cover the event.
func TestAHandoverBeforeTheRelayMeetsANewServer(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{true, false} {
		b := newBench(t)
		r, claimed := b.handedOver(t)
		r.followUps.seen, r.followUps.server = "1000000:1000000:", r.followUps.server.Add(-time.Hour)
		r.registration.last.Server = r.followUps.server
		if h := b.handOver(t, r, event("a", 1)); committed && (!h.Committed() || len(claimed) != 1) {
			t.Fatal("not handed over")
		}
		for _, when := range []string{"at the first heartbeat", "when the scans are through"} {
			if err := r.writeHeartbeat(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if n := b.count(t, `SELECT count(*) FROM outbox JOIN outbox_relays ON NOT pg_visible_in_snapshot(xact, low)`); n != 1 {
				t.Errorf("committed %v: %s the relay's row does not cover the event", committed, when)
			}
			r.followUps.unknownLeasesUntil = time.Time{} // the broker takes its time, and the leases are renewed
			r.scanDue(t, claimed)
		}
		if committed {
			if low, behind := (<-claimed).lows(); behind != low {
				t.Errorf("the low of the event is %s, that of the events behind it is %s", low, behind)
			}
		}
	}
}

// A relay has published versions when it meets a new server, and a claim behind such a version is on its way or
// follows. The snapshots of the versions are of the former server, whose transactions had higher ids. The relay's
// row must cover the claimed event.
func TestAClaimBehindAVersionOfAFormerServer(t *testing.T) {
	t.Parallel()
	const former = "1000000:1000000:"
	for name, test := range map[string]struct{ held, onItsWay bool }{
		"claim on its way": {onItsWay: true}, "claim": {}, "turn on its way": {held: true, onItsWay: true}, "turn": {held: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			wait := b.waitingPool(t)
			r, claimed := b.handedOver(t)
			b.append(t, "a", 1, 1)
			r.claim(t, claimed)
			r.settleAll(t, publishResult{batch: <-claimed, report: report{published: 1}})
			r.followUps.seen, r.followUps.server = former, r.followUps.server.Add(-time.Hour)
			r.registration.last.Server, r.followUps.published.list[0].low = r.followUps.server, former
			if test.held {
				r.followUps.holdSaved(eventing.DefaultTenant)
				r.tenants.changed = time.Now()
			}
			meet := func() {
				if err := r.writeHeartbeat(t.Context(), false); err != nil {
					t.Fatal(err)
				}
			}
			claim := func() {
				if !test.held {
					r.claim(t, claimed)
				} else if !r.inFlight.reserve(byTurn) {
					t.Error("no room for a turn")
				} else if err := r.takeTurn(t.Context(), &turnSchedule{}, claimed); err != nil {
					t.Error(err)
				}
			}
			if test.onItsWay {
				arrived, goOn := wait()
				done := make(chan struct{})
				go func() { defer close(done); claim() }()
				<-arrived
				meet()
				b.append(t, "a", 2, 2)
				goOn()
				<-done
			} else {
				b.append(t, "a", 2, 2)
				meet()
				claim()
			}
			if len(claimed) != 1 {
				t.Fatalf("%d events are claimed", len(claimed))
			}
			r.followUps.unknownLeasesUntil = time.Time{} // the broker takes its time, and the lease is renewed
			r.scanDue(t, claimed)
			for range 2 {
				r.claim(t, claimed)
				if test.held {
					claim() // a page
				}
			}
			meet()
			const covered = `SELECT count(*) FROM outbox JOIN outbox_relays ON NOT pg_visible_in_snapshot(xact, low) WHERE published_at IS NULL`
			if n := b.count(t, covered); n != 1 {
				t.Errorf("the relay's row covers %d events of 1", n)
			}
		})
	}
}

// A failover loses the mark of the second of two versions that a claim has taken, so that the claim finds it behind the first
// one. The low of the second one saw it, and does not cover it.
func TestTheLowOfAClaimBehindTwoVersions(t *testing.T) {
	t.Parallel()
	a := aggregateKey{"video", "a"}
	version := func(v int64, low queue.TxSnapshot) followUp {
		return followUp{queue.AggregateVersion{AggregateType: a.kind, AggregateID: a.id, Version: v}, low, ""}
	}
	_, lows, first := versionsOf([]followUp{version(1, "5:5:"), version(2, "7:7:")})
	if lows[a] != "5:5:" || first != "5:5:" {
		t.Errorf("the low is %s, and that of all is %s", lows[a], first)
	}
}

// A relay counts as dead, and claims an event before it writes its row again. Then it is killed. Another relay has given up its
// handover of the event in between, as a claim has found it.
func TestAHandoverThatARelayWithoutARowHasClaimed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.handedOver(t)
	other, theirs := b.handedOver(t)
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := r.Handover()
	if err := h.Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil { // and the process does not know it
		t.Fatal(err)
	}
	r.claim(t, claimed)
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '16 s' WHERE token = '`+other.token+`'`)
	if err := r.writeHeartbeat(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	r.scanDue(t, claimed)
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s'`)
	other.claim(t, theirs)
	if len(theirs) != 1 || len(claimed) != 0 {
		t.Fatal(len(theirs), len(claimed))
	}
	r.expireAt(time.Now().Add(handoverTime + time.Second))
	back := <-claimed
	r.settleAll(t, publishResult{batch: back})
	if r.inFlight.opened() != 0 {
		t.Fatal("the handover is still open")
	}
	r.claim(t, claimed)
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s'`)
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("the event of a relay that is not there any more is left to the sweep")
	}
}

// A relay gives up a handover while it meets another server, which changes the lows of all events in flight. The race detector
// sees a low that is read without its lock, in most of these tries at least once.
func TestAHandoverIsGivenUpWhileTheRelayMeetsANewServer(t *testing.T) {
	t.Parallel()
	for range 100 {
		r := &Relay{followUps: newFollowUps(), inFlight: newInFlight()}
		r.followUps.seen = "5:5:"
		h := &Handover{event: event("a", 1), low: "5:5:"}
		batch := &leasedBatch{events: queue.Batch{{Event: h.event}}, low: h.low, lowBehind: h.low, unresolved: h, leaseOver: true}
		r.inFlight.handovers[h], r.inFlight.batches[h.event.ID] = struct{}{}, batch
		s := &settler{Relay: r}
		start := make(chan struct{})
		var both sync.WaitGroup
		both.Go(func() {
			<-start
			r.followUps.heartbeatWritten(queue.HeartbeatResult{Low: "3:3:", Seen: "4:4:"}, true, r.inFlight)
		})
		both.Go(func() {
			<-start
			s.closeResolved([]*unsettled{{publishResult: publishResult{batch: batch}}}, queue.Settled{Elsewhere: []uuid.UUID{h.event.ID}})
		})
		close(start)
		both.Wait()
		if low := r.followUps.low(r.inFlight); low != "3:3:" {
			t.Fatalf("the low is %s", low)
		}
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
		todo := a.take(10)
		a.heartbeatWritten(queue.HeartbeatResult{Low: "3:3:", Seen: "9:9:", Server: time.Now()}, true, f)
		a.beginScan()
		a.endScan()
		batch := queue.Batch{{Event: event("a", 1)}} // as many events as the claim may take
		h := f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{batch}, Seen: "9:9:"}, sent: time.Now(), low: todo.seen})
		if held {
			a.holdSaved(batch.Tenant())
		}
		a.settled([]*unsettled{published(h[0], 1)}, true)
		f.removeAll(h)
		a.claimed(f, "9:9:", todo, todo.seen)
		if low := a.low(f); low != "3:3:" {
			t.Errorf("%s: the low is %s, and does not cover what follows the version", name, low)
		}
	}
}
