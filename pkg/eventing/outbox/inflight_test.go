package outbox

import (
	"context"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// removeAll removes batches as the settler does.
func (f *inFlight) removeAll(batches []*leasedBatch) {
	for _, h := range batches {
		f.remove(h)
	}
	f.signalRoom()
}

// Candidates have room of their own, which is bounded: when it is full, they wait for a
// claim, and claims never wait for them.
func TestCandidatesHaveRoomOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	var batches []*leasedBatch
	for range maxCandidates {
		r := queue.Batch{{Event: event("a", 1)}}
		batches = append(batches, f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{r}}, candidates: true})...)
	}
	if f.hasRoomForProbes() || f.events != 0 || f.bytes != 0 || f.reserved != 0 {
		t.Errorf("with %d candidates in flight: %d events, %d reserved, room %v", maxCandidates, f.events, f.reserved, f.hasRoomForProbes())
	}
	f.removeAll(batches[:candidatesPerProbe])
	if !f.hasRoomForProbes() || f.total() != maxCandidates-candidatesPerProbe {
		t.Errorf("%d are held, room %v", f.total(), f.hasRoomForProbes())
	}
}

// refuse has a claimant be refused room, and others wait for it.
func (f *inFlight) refuse(by claimant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting[by] = true
	for other := range f.served {
		if claimant(other) != by {
			f.served[other] = f.served[by] + 1
		}
	}
}

// A claimant that waits for room, and then has nothing to claim, lets the others go on: a scan that
// waited for retries, which wait for others of their kind now; turns of a tenant that was released;
// claims of topics that are all paused.
func TestAClaimantThatWaitsNoMoreLetsOthersGoOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	r.tenants.count(batchFor("x", 1), 1, time.Now())
	r.tenants.count(batchFor("y", 1), 1, time.Now())
	r.inFlight.retrying = retryEvents
	goesOn := func(by claimant, loop func(context.Context)) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		before := r.inFlight.served[by]
		ended := make(chan struct{})
		go func() { defer close(ended); loop(ctx) }()
		defer func() { cancel(); <-ended }()
		var served int
		b.poll(t, func() bool { // a sweep comes first
			r.inFlight.mu.Lock()
			defer r.inFlight.mu.Unlock()
			served = r.inFlight.served[by]
			return by != byScan || served > before
		}, "no sweep")
		r.inFlight.refuse(by)
		signal(r.followUps.wakeTurns)
		signal(r.followUps.wakeClaims)
		b.poll(t, func() bool {
			r.inFlight.mu.Lock()
			defer r.inFlight.mu.Unlock()
			return !r.inFlight.waiting[by]
		}, "others wait for it")
		if now := r.inFlight.served[by]; now != served {
			t.Errorf("claimant %d has stopped to wait because it was served", by)
		}
	}
	goesOn(byScan, func(ctx context.Context) { r.scanLoop(ctx, ctx, claimed) })
	goesOn(byTurn, func(ctx context.Context) { r.turnLoop(ctx, ctx, claimed) })
	for _, p := range r.pauses {
		p.pause(causeOutage)
	}
	goesOn(byClaim, func(ctx context.Context) { r.claimLoop(ctx, claimed) })
}
