package outbox

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// waitingFor returns a result of n published events of an aggregate, under a lease that
// lasts for left.
func waitingFor(n int, left time.Duration) *unsettled {
	return published(&leasedBatch{events: batchOf(n, 1), leaseUntil: time.Now().Add(left)}, n)
}

// published is the result of a batch whose first n events were published.
func published(h *leasedBatch, n int) *unsettled {
	return &unsettled{publishResult: publishResult{h, report{published: n}}, settlement: queue.Settlement{Batch: h.events, Published: n}}
}

func TestAStatementSettlesWhatIsDueAndFits(t *testing.T) {
	t.Parallel()
	later := waitingFor(1, queue.LeaseTime)
	later.notBefore = time.Now().Add(time.Hour)
	nothing := waitingFor(3, queue.LeaseTime)
	nothing.settlement.Published = 0 // weighs as much as one
	s := &settler{limit: 5, waiting: []*unsettled{
		waitingFor(3, queue.LeaseTime), waitingFor(4, queue.LeaseTime), later, nothing, waitingFor(1, queue.LeaseTime), waitingFor(9, queue.LeaseTime),
	}}
	for _, want := range [][]int{{3, 0, 1}, {4}, {5}, nil} {
		var got []int
		for _, u := range s.take() {
			got = append(got, u.settlement.Published)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("a statement has %v, want %v", got, want)
		}
	}
	if !slices.Equal(s.waiting, []*unsettled{later}) || s.untilNext() < queue.LeaseTime {
		t.Errorf("%d wait, for %v", len(s.waiting), s.untilNext())
	}
}

// A statement fails for two batches, and the lease of one is over: the relay drops that
// batch, and a scan finds it when its lease has ended in the database too.
func TestAResultWithoutALeaseIsNotKept(t *testing.T) {
	t.Parallel()
	r := newBench(t).newRelay(t)
	s := &settler{Relay: r, limit: 5}
	over, good := waitingFor(1, -time.Second), waitingFor(1, queue.LeaseTime)
	over.batch.low.snapshot, good.batch.low.snapshot = "7:7:", "9:9:"
	for _, u := range []*unsettled{over, good} {
		r.inFlight.batches[u.batch.events.Head()] = u.batch
		r.inFlight.events++
	}
	ends := time.Now().Add(queue.LeaseTime)
	s.retryLater([]*unsettled{over, good})
	if !slices.Equal(s.waiting, []*unsettled{good}) || good.tries != 1 || r.inFlight.total() != 1 {
		t.Errorf("%d wait, %d are in flight", len(s.waiting), r.inFlight.total())
	}
	if at := r.followUps.due().scanAt; r.followUps.low(r.inFlight) != over.batch.low.snapshot || at.Before(ends) {
		t.Errorf("a scan goes from %q at %v, want from %q when the lease has ended, at %v", r.followUps.low(r.inFlight), at, over.batch.low.snapshot, ends)
	}
}

// Each statement takes one event, and a renewal is due after the first: it renews the lease
// of the event that waits for the second statement, and that of one that is still being
// published.
func TestLeasesAreRenewedBetweenStatements(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	b.appendEach(t, "a", 3)
	b.claimAll(t, r, claimed)
	s := &settler{Relay: r, limit: 1}
	batches := []*leasedBatch{<-claimed, <-claimed, <-claimed}
	half := time.Now().Add(queue.LeaseTime / 2)
	for _, h := range batches {
		h.extend(half)
	}
	for _, h := range batches[:2] {
		s.waiting = append(s.waiting, published(h, 1))
	}
	renew := make(chan time.Time, 1)
	renew <- time.Now()
	s.settleDue(t.Context(), t.Context(), renew)
	for i, renewed := range []bool{false, true, true} {
		if batches[i].leaseUntil.After(half) != renewed {
			t.Errorf("event %d: lease until %v, renewed: want %t", i, batches[i].leaseUntil, renewed)
		}
	}
	if n := b.count(t, unpublished); n != 1 || r.inFlight.total() != 1 {
		t.Errorf("%d are unpublished, %d in flight, want the one that is not published yet", n, r.inFlight.total())
	}
}

// A claim takes a batch a second time, because it has been settled but not removed yet, or under a lease that ran out unnoticed.
func TestABatchIsInFlightOnce(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	again, other := batchOf(3, 1), batchOf(2, 1)
	claim := func(batches ...queue.Batch) []*leasedBatch {
		if !f.reserve(byClaim) {
			t.Fatal("no room for a claim")
		}
		return f.add(claimResult{Claimed: queue.Claimed{Batches: batches}, claim: queue.Claim{PerAggregate: minPerAggregate}, sent: time.Now(), low: datedLow{snapshot: queue.Beginning}})
	}
	first := claim(again)
	first[0].extend(time.Now().Add(queue.LeaseTime / 4))
	added := claim(again, other)
	if !first[0].validFor(queue.LeaseTime / 2) {
		t.Error("the batch does not have the lease of the second claim")
	}
	first[0].extend(time.Now())
	if added = append(added, claim(again)...); first[0].validFor(0) {
		t.Error("a batch has a lease again although it was over, so it may be sent")
	}
	if len(first) != 1 || len(added) != 1 || added[0].events.Head() != other.Head() || f.batches[again.Head()] != first[0] {
		t.Fatalf("the second claim adds %d batches, want the one that is not in flight", len(added))
	}
	if n := f.total(); n != 5 {
		t.Errorf("%d events are in flight, want 5", n)
	}
	if f.remove(first[0]) || !f.remove(added[0]) || f.total() != 3 {
		t.Errorf("%d events are in flight, want the batch that was claimed again", f.total())
	}
	if !f.remove(first[0]) || f.total() != 0 || f.bytes != 0 {
		t.Errorf("%d events and %d bytes are left", f.total(), f.bytes)
	}
}

// A late statement of the relay itself has taken the lease away. No other relay looks for the
// events then, so the relay does.
func TestALostBatchIsLookedFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 1)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	b.append(t, "a", 1, 1)
	b.claimAll(t, r, claimed)
	r.followUps.beginScan()
	r.followUps.endScan()
	b.exec(t, `UPDATE outbox SET lock_token = NULL, locked_at = NULL`)
	r.settleAll(t, publishResult{<-claimed, report{published: 1}})
	if at := r.followUps.due().scanAt; at.IsZero() || at.After(time.Now()) || b.count(t, unpublished) != 1 {
		t.Errorf("a scan is due at %v, want now", at)
	}
	if !strings.Contains(log.String(), "leases were lost") {
		t.Errorf("no line about the lost lease: %s", log.String())
	}
}

// A settled batch is free in the table before it is out of the relay's memory. A claim finds it in
// between and takes a new lease, which no publisher has.
func TestABatchThatIsClaimedWhileItIsSettledIsHandedBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 1)
	b.append(t, "a", 1, 1)
	b.claimAll(t, r, claimed)
	first := <-claimed
	if _, err := r.queue.Settle(t.Context(), r.token, []queue.Settlement{{Batch: first.events}}); err != nil {
		t.Fatal(err)
	}
	b.claimAll(t, r, claimed)
	if n := b.count(t, leased); n != 1 {
		t.Fatalf("the second claim has taken %d leases, want 1", n)
	}
	s := &settler{Relay: r, limit: 1}
	s.removeSettled([]*unsettled{{publishResult: publishResult{batch: first}}})
	s.settleDue(t.Context(), t.Context(), nil)
	if n := b.count(t, leased); n != 0 || len(claimed) != 0 || r.inFlight.total() != 0 {
		t.Errorf("%d leases are left, %d batches with the publishers, %d events in flight", n, len(claimed), r.inFlight.total())
	}
	if r.followUps.due().scanAt.After(time.Now()) || r.followUps.due().scanAt.IsZero() {
		t.Error("no scan is due that finds the batch again")
	}
}

// The leases of batches run out while the batches wait for a publisher. The relay claims them again
// and publishes them once. So nothing was lost.
func TestABatchThatIsClaimedAgainIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 2)
	var log bytes.Buffer
	r.log = slog.New(slog.NewTextHandler(&log, nil))
	b.append(t, "a", 1, 1)
	b.claimAll(t, r, claimed)
	first := <-claimed
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '30 seconds'`)
	b.claimAll(t, r, claimed) // the lease has the same token
	s := &settler{Relay: r, limit: 1, waiting: []*unsettled{published(first, 1)}}
	s.settleDue(t.Context(), t.Context(), nil)
	if n := b.count(t, unpublished); n != 0 || r.inFlight.total() != 0 || len(claimed) != 0 {
		t.Fatalf("%d are unpublished, %d in flight, %d with the publishers", n, r.inFlight.total(), len(claimed))
	}
	if strings.Contains(log.String(), "lost") {
		t.Error(log.String())
	}
}

// TestAQuickDatabaseIsAskedForMore has statements begin with one event.
func TestAQuickDatabaseIsAskedForMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 100)
	b.appendEach(t, "a", 50)
	b.claimAll(t, r, claimed)
	s := &settler{Relay: r, limit: 1}
	for range 50 {
		h := <-claimed
		s.waiting = append(s.waiting, published(h, 1))
	}
	s.settleDue(t.Context(), t.Context(), nil)
	if s.limit < 2 {
		t.Error("a statement still has one event, after all 50 were quick")
	}
	if n := b.count(t, unpublished); n != 0 || r.inFlight.total() != 0 {
		t.Errorf("%d are unpublished, %d in flight", n, r.inFlight.total())
	}
}

// Results that arrive within settleEvery after a statement share the next one. Without a statement
// before, and with nothing else in flight, a result does not wait.
func TestGatherWaitsForTheNextStatement(t *testing.T) {
	t.Parallel()
	s := &settler{Relay: &Relay{inFlight: newInFlight()}}
	result := publishResult{batch: &leasedBatch{events: queue.Batch{{}}}}
	if got := s.gather(result, make(chan publishResult)); len(got) != 1 {
		t.Errorf("%d results", len(got))
	}
	s.sentAt = time.Now().Add(time.Hour)
	results := make(chan publishResult)
	go func() {
		results <- result
		close(results)
	}()
	if got := s.gather(result, results); len(got) != 2 {
		t.Errorf("%d results are in the next statement, want both", len(got))
	}
}
