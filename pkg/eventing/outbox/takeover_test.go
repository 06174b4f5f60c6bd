package outbox

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
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
	db := pgtest.Open(t, config)
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
		beat(t, relay)
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
	beat(t, r)
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
	beat(t, r)
	tx := pgtest.Begin(t, b.db)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if err := ending.Handover().Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	arrived, goOn := wait()
	done := make(chan struct{})
	go func() { defer close(done); r.claim(t, claimed) }()
	<-arrived
	ending.deregister(t.Context())
	beat(t, r)
	if !r.scanDue(t, claimed) {
		t.Fatal("the relay that has ended is not taken over")
	}
	pgtest.End(t, tx.Commit)
	goOn()
	<-done
	if n := b.count(t, leased); n != 1 || len(claimed) != 0 {
		t.Fatalf("%d leases, %d claimed", n, len(claimed))
	}
	if !b.isClaimedLater(t, r, claimed) {
		t.Error("the event of a relay that has ended stays pending")
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
	beat(t, r)
	tx := pgtest.Begin(t, b.db)
	h := r.Handover()
	if err := h.Append(t.Context(), tx, nil, event("a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil { // and the process does not know it
		t.Fatal(err)
	}
	r.claim(t, claimed)
	b.exec(t, `UPDATE outbox_relays SET seen_at = now() - interval '16 s' WHERE token = '`+other.token+`'`)
	beat(t, r)
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
