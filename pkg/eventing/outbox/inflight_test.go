package outbox

import (
	"testing"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

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
	f.remove(batches[:candidatesPerProbe])
	if !f.hasRoomForProbes() || f.total() != maxCandidates-candidatesPerProbe {
		t.Errorf("%d are held, room %v", f.total(), f.hasRoomForProbes())
	}
}
