package outbox

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
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
	return publishResult{h, report{err: status.Error(codes.InvalidArgument, "bad"), refused: true, requests: 1}}
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

// A relay stands still with an event that it has not sent yet. Meanwhile another one parks the event, and an operator skips it: a
// marker takes its place. The relay claims the marker, and must not send the event.
func TestASkippedEventIsNotSent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, claimed := b.registered(t)
	b.append(t, "a", 1, 1)
	b.claimAll(t, r, claimed)
	first := <-claimed
	first.extend(time.Now())
	b.exec(t, `UPDATE outbox SET event_type = $1, payload = '', next_retry_at = now(), lock_token = NULL, locked_at = NULL`, eventing.Skipped)
	r.claimRetries(t, claimed)
	if n := b.count(t, leased); n != 1 {
		t.Fatalf("%d leases are taken, want that of the marker", n)
	}
	b.exec(t, `UPDATE outbox SET locked_at = now() - interval '10 s'`)
	r.renew(t.Context())
	r.settleAll(t, publishResult{first, r.send(t.Context(), t.Context(), first)})
	if n := len(b.server.Messages()); n != 0 {
		t.Fatalf("%d messages are sent, want none of an event that was skipped", n)
	}
	if n := b.count(t, leased); n != 0 || r.inFlight.total() != 0 {
		t.Errorf("%d leases are left, %d events are in flight", n, r.inFlight.total())
	}
	r.claimRetries(t, claimed)
	marker := <-claimed
	r.settleAll(t, publishResult{marker, r.send(t.Context(), t.Context(), marker)})
	if sent := b.server.Messages(); len(sent) != 1 || sent[0].Attributes[eventing.AttrEventType] != eventing.Skipped || b.count(t, unpublished) != 0 {
		t.Errorf("sent %v, want the marker", sent)
	}
}
