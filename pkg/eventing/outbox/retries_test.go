package outbox

import (
	"errors"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// Candidates for a probe that waited for a retry go back, and are found as before: no relay
// has to scan the whole table for them.
func TestRetriesThatGoBackAreFoundAsRetries(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	var s claimSchedule
	r.step(t.Context(), &s, claimed) // it joins
	r.scanDue(t, claimed)
	b.append(t, "a", 1, 1)
	b.append(t, "b", 1, 1)
	r.step(t.Context(), &s, claimed)
	for range 2 {
		h := <-claimed
		r.settleAll(t, publishResult{h, report{err: errors.New("out"), requests: 1}})
	}
	b.exec(t, `UPDATE outbox SET next_retry_at = now()`)
	c := r.pauses["video"]
	c.pause(causeOutage)
	c.retryAt = time.Now()
	r.probe(t.Context(), claimed)
	if len(claimed) != 2 {
		t.Fatalf("%d candidates", len(claimed))
	}
	if low := r.inFlight.low(r.followUps.met); low == queue.Beginning {
		t.Error("what is found as a retry has others look through the whole table")
	}
	r.followUps.forgetRetries() // of the two candidates
	for range 2 {
		r.settleAll(t, publishResult{batch: <-claimed})
	}
	if low := r.followUps.low(r.inFlight); low == queue.Beginning {
		t.Error("what goes back to its retry has the relay look through the whole table")
	}
	if r.followUps.due().retryAt.IsZero() {
		t.Error("no claim looks for the retries")
	}
}

// A probe takes one version of an aggregate that waited for a retry. The event behind it is
// the next retry, and no relay has to scan the whole table for it.
func TestWhatIsBehindAProbeIsTheNextRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 2)
	b.exec(t, `UPDATE outbox SET next_retry_at = now() WHERE version = 1`)
	outAndDue(r.pauses["video"])
	r.probe(t.Context(), claimed)
	if len(claimed) != 1 {
		t.Fatalf("%d candidates", len(claimed))
	}
	r.settleAll(t, publishResult{<-claimed, report{published: 1}})
	if low := r.followUps.low(r.inFlight); low == queue.Beginning {
		t.Error("what is behind a probe has others look through the whole table")
	}
	b.append(t, "other", 1, 1)
	other := b.newRelay(t) // without the follow-ups of the first
	got, _, err := other.queue.ClaimRetries(t.Context(), other.claimLimits(exclusions{life: r.followUps.met.life}))
	if err != nil || len(got.Batches) != 1 || got.Batches[0][0].Version != 2 || !got.Batches[0][0].Retry {
		t.Errorf("another relay claims %+v, %v, want version 2 as a retry", got.Batches, err)
	}
}

// An event behind a retry at the time of the claim is found with the retry. A later event
// was not visible to the claim, whether or not the batch was cut short.
func TestWhatIsBehindARetryIsCovered(t *testing.T) {
	t.Parallel()
	f := newInFlight()
	claim := queue.Claim{Events: 100, PerAggregate: 3, Bytes: 1000}
	retry := batchOf(3, 1)
	retry[0].Retry = true
	for _, low := range []queue.TxSnapshot{"", "10:10:"} { // claimed as a retry, or by a scan
		f.reserved++
		h := f.add(claimResult{Claimed: queue.Claimed{Batches: []queue.Batch{retry}, Seen: "50:50:"}, claim: claim, sent: time.Now(), low: datedLow{snapshot: low}})
		if got := f.low(meeting{}); got != "50:50:" || h[0].lowBehind.snapshot != got {
			t.Errorf("low %q, behind the batch %q", got, h[0].lowBehind.snapshot)
		}
		f.removeAll(h)
	}
}
