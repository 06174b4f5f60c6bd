package outbox

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// scanDue runs the scan that was asked for, whenever it is due, and reports whether there
// was one.
func (r *Relay) scanDue(t *testing.T, claimed chan<- *leasedBatch) bool {
	t.Helper()
	s := newScanSchedule()
	s.started(r.followUps.beginScan())
	if s.low.snapshot == "" {
		return false
	}
	for len(s.parts) > 0 {
		if !r.inFlight.reserve(byScan) {
			t.Fatal("no room for a claim")
		}
		if err := r.scan(t.Context(), s, actScanPage, claimed); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

// A paused topic resumes after a claim has read the list of paused topics, and before the
// claim's statement has skipped the topic's events. They still get a scan.
func TestTopicResumedDuringAClaimIsScanned(t *testing.T) {
	t.Parallel()
	pg := pgtest.New(t)
	b := newBenchOn(t, pg)
	b.topics["other"] = "projects/test/topics/other"
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	var s claimSchedule
	r.step(t.Context(), &s, claimed) // it joins
	r.scanDue(t, claimed)
	c := r.pauses["video"]
	c.pause(causeOutage)
	c.retryAt = time.Now().Add(time.Hour)
	b.append(t, "a", 1, 1)
	tx := pgtest.Begin(t, pg.Pool(t, pg.Admin))
	pgtest.Exec(t, tx, `LOCK TABLE app.outbox IN ACCESS EXCLUSIVE MODE`)
	done := make(chan struct{})
	go func() { defer close(done); r.step(t.Context(), &s, claimed) }()
	b.poll(t, func() bool { return len(r.followUps.exclusions().paused) == 1 }, "no claim is on its way")
	if c.succeeded("b") {
		r.followUps.topicResumed(c.types)
	}
	pgtest.End(t, tx.Rollback)
	<-done
	s.pollAt = time.Now().Add(time.Hour)
	r.step(t.Context(), &s, claimed)
	r.scanDue(t, claimed)
	if len(claimed) != 1 {
		t.Error("no scan looks for the events that a claim skipped while its topic came back")
	}
}

// lossy is a connection that can lose an answer, and with it the connection.
type lossy struct {
	net.Conn
	lose *atomic.Bool
}

func (l lossy) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 && l.lose.CompareAndSwap(true, false) {
		return 0, errors.Join(io.ErrUnexpectedEOF, l.Close())
	}
	return n, err
}

// A claim commits and its answer is lost: the relay has leases that it does not know of. It
// treats them as ownerless until they have ended.
func TestEventsOfALostClaimAreScanned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var lose atomic.Bool
	config := b.db.Config()
	dial := config.ConnConfig.DialFunc
	config.MaxConns = 1
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return lossy{conn, &lose}, err
	}
	db := pgtest.Open(t, config)
	b.relayDB = db
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	var s claimSchedule
	r.step(t.Context(), &s, claimed) // it joins
	r.scanDue(t, claimed)
	r.step(t.Context(), &s, claimed) // a claim, which prepares the statement
	b.append(t, "a", 1, 1)
	lose.Store(true)
	s = claimSchedule{}
	r.step(t.Context(), &s, claimed)
	if n := b.count(t, leased); s.failures != 1 || n != 1 || len(claimed) != 0 {
		t.Fatalf("%d failures, %d leases, %d claimed", s.failures, n, len(claimed))
	}
	s = claimSchedule{}
	r.step(t.Context(), &s, claimed)
	for range 2 { // a scan for another reason comes before the lease has run out
		if !r.scanDue(t, claimed) {
			t.Fatal("no scan looks for the leases of a claim with a lost answer")
		}
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '21 s'`)
	r.scanDue(t, claimed)
	if len(claimed) != 1 {
		t.Error("what was leased with an answer that was lost is not claimed when that lease has run out")
	}
}

// A claim's limits may cut its last batch short without leaving out any head. The claim has
// seen the events behind such a batch all the same.
func TestTheRestOfATruncatedBatchIsCovered(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]queue.Claim{
		"events":   {Events: 3, PerAggregate: 100, Bytes: 1000},
		"versions": {Events: 100, PerAggregate: 3, Bytes: 1000},
		"bytes":    {Events: 100, PerAggregate: 100, Bytes: 3},
	} {
		f := newInFlight()
		f.reserved++
		h := f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{batchOf(3, 1)}, Seen: "50:50:"}, claim: claim, sent: time.Now(), low: datedLow{snapshot: "10:10:"}})
		if h[0].lowBehind.snapshot != "10:10:" {
			t.Errorf("%s: behind the batch nothing was visible to %s, want 10:10:", name, h[0].lowBehind.snapshot)
		}
	}
}

// Of a batch that is published in part, the rest is behind the published version. A relay that takes over
// must scan for the rest, so the version has the low of the whole batch.
func TestTheRestOfAPublishedBatchIsCovered(t *testing.T) {
	t.Parallel()
	for published, want := range map[int]queue.TxSnapshot{1: "10:10:", 3: "50:50:"} {
		a, b := newFollowUps(), &leasedBatch{events: batchOf(3, 1), low: datedLow{snapshot: "10:10:"}, lowBehind: datedLow{snapshot: "50:50:"}}
		a.settled([]*unsettled{{
			publishResult: publishResult{batch: b}, settlement: queue.Settlement{Batch: b.events, Published: published},
		}}, false)
		if low := a.low(newInFlight()); low != want {
			t.Errorf("%d of 3 published: the low is %s, want %s", published, low, want)
		}
	}
}

// A settlement commits and its answer is lost; then its first part is written once more.
// The next event is the one behind all published ones.
func TestNextEventFollowsAllPublishedOnes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	b.append(t, "a", 1, 4)
	b.claimAll(t, r, claimed)
	h := <-claimed
	whole := queue.Settlement{Batch: h.events, Published: 4}
	if _, err := r.queue.Settle(t.Context(), r.token, []queue.Settlement{whole}); err != nil {
		t.Fatal(err)
	}
	b.append(t, "a", 5, 5)
	part := queue.Settlement{Batch: h.events, Published: 2}
	got, err := r.queue.Settle(t.Context(), r.token, []queue.Settlement{part})
	if err != nil || len(got.Lost) != 1 || !got.Followed {
		t.Errorf("settled %+v, %v", got, err)
	}
	c, err := r.queue.ClaimNew(t.Context(), r.claimLimits(exclusions{life: r.followUps.met.life}), "1000000:1000000:", []queue.AggregateVersion{part.Batch[:2].Last()})
	if err != nil || len(c.Batches) != 1 || c.Batches[0][0].Version != 5 {
		t.Errorf("claimed %+v, %v, want version 5", c.Batches, err)
	}
}

// A relay meets another server after a heartbeat without an answer: snapshots of the first
// server mean nothing there.
func TestAnotherServerAfterAnUnansweredHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	var s claimSchedule
	r.step(t.Context(), &s, claimed) // it joins
	r.beforeFailover()
	r.followUps.seen = "1000000:1000000:"
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if r.writeHeartbeat(cancelled, false) == nil {
		t.Fatal("a heartbeat without an answer reports none")
	}
	beat(t, r)
	if r.followUps.seen == "1000000:1000000:" {
		t.Error("new events are those since a snapshot of another server")
	}
}

// A claim waits for its turn behind a scan. When the scan has found nothing, the claim is
// woken.
func TestEmptyScanWakesTheWaitingClaim(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	f.events = maxEvents
	if f.served[byClaim] = 1; f.reserve(byClaim) || f.reserve(byScan) {
		t.Fatal("room beyond the bound")
	}
	f.events = 0 // every batch has a result
	f.signalRoom()
	<-f.room[byClaim]
	if f.reserve(byClaim) || !f.reserve(byScan) {
		t.Fatal("it is the scan's turn")
	}
	f.add(claimResult{})
	select {
	case <-f.room[byClaim]:
	default:
		t.Error("the claim is not woken although it has room")
	}
	if !f.reserve(byClaim) {
		t.Error("the claim has no room")
	}
}
