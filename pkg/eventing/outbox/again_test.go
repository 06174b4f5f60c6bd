package outbox

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The tests of this file are histories that an exhaustive search through a model of the relays has found. In each of them a relay
// claims an event that it still has in flight.

// claimRetries has r claim the retries that are due.
func (r *Relay) claimRetries(t *testing.T, claimed chan<- *leasedBatch) {
	t.Helper()
	if !r.inFlight.reserve(byScan) {
		t.Fatal("no room for a claim")
	}
	if err := r.scan(t.Context(), newScanSchedule(), actRetries, claimed); err != nil {
		t.Fatal(err)
	}
}

// isRefused is the result of a batch whose first event the broker has refused.
func isRefused(h *leasedBatch) publishResult {
	return publishResult{h, report{err: status.Error(codes.InvalidArgument, "bad"), rejected: true, requests: 1}}
}

// settleUnanswered settles a result. The relay does not get the answer, so the result stays in flight.
func (r *Relay) settleUnanswered(t *testing.T, p publishResult) {
	t.Helper()
	if _, err := r.queue.Settle(t.Context(), r.token, []queue.Settlement{r.settlement(t.Context(), p)}); err != nil {
		t.Fatal(err)
	}
}

// A refusal is written, and the answer is lost. The event's retry is due before the relay writes the refusal once more.
func TestARefusalIsCountedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	b.claimAll(t, r, claimed)
	refused := isRefused(<-claimed)
	r.settleUnanswered(t, refused)
	b.exec(t, `UPDATE outbox SET next_retry_at = now()`)
	r.claimRetries(t, claimed)
	r.settleAll(t, refused)
	if n := b.count(t, `SELECT publish_attempts FROM outbox`); n != 1 {
		t.Errorf("%d attempts after one refusal", n)
	}
	if n := b.count(t, leased); n != 0 || r.inFlight.total() != 0 {
		t.Errorf("%d leases are left, %d events are in flight", n, r.inFlight.total())
	}
	r.claimRetries(t, claimed)
	if len(claimed) != 1 {
		t.Error("the event is not claimed again as a retry that is due")
	}
}

// The last refusal of an event is written, and the answer is lost. An operator lets relays try the event again before the relay
// writes the refusal once more.
func TestAnEventIsNotParkedAgainByTheSameRefusal(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	b.exec(t, `UPDATE outbox SET publish_attempts = $1`, maxAttempts-1)
	b.claimAll(t, r, claimed)
	refused := isRefused(<-claimed)
	r.settleUnanswered(t, refused)
	if n := b.count(t, parked); n != 1 {
		t.Fatalf("%d events are parked by the last refusal", n)
	}
	b.exec(t, `UPDATE outbox SET parked_at = NULL, next_retry_at = now(), publish_attempts = 0`)
	r.claimRetries(t, claimed)
	r.settleAll(t, refused)
	if n := b.count(t, parked); n != 0 {
		t.Fatal("the event is parked again, and no relay has tried it")
	}
	r.claimRetries(t, claimed)
	if len(claimed) != 1 {
		t.Error("the event is not claimed again as a retry that is due")
	}
}
