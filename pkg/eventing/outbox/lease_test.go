package outbox

import (
	"context"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A relay renews three leases: its own, one that another relay has taken over, and one with
// a row that another transaction has locked.
func TestRenewingEndsWhatIsLostOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "kept", 1, 1)
	b.append(t, "lost", 1, 1)
	b.append(t, "locked", 1, 1)
	r, claimed := b.newRelay(t), make(chan *leasedBatch, 10)
	b.claimAll(t, r, claimed)
	half := time.Now().Add(10 * time.Second)
	for range 3 {
		(<-claimed).extend(half)
	}
	b.exec(t, `UPDATE outbox SET lock_token = 'another', locked_at = now() WHERE aggregate_id = 'lost'`)
	defer b.lock(t, "locked", 1)()
	r.renew(t.Context())
	for _, h := range r.inFlight.batches {
		switch id := h.events[0].AggregateID; {
		case id == "kept" && !h.validFor(12*time.Second):
			t.Error("the lease is not extended")
		case id == "lost" && h.validFor(0):
			t.Error("a lost lease begins further requests")
		case id == "locked" && !h.leaseUntil.Equal(half):
			t.Errorf("of a row that another transaction has locked, the lease lasts until %v, want %v", h.leaseUntil, half)
		}
	}
	if len(r.inFlight.dueForRenewal()) != 2 {
		t.Errorf("%d leases are to be renewed next, want the two that were not", len(r.inFlight.dueForRenewal()))
	}
}

func TestWhatIsARefusal(t *testing.T) {
	t.Parallel()
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		err := status.Error(code, "x")
		if got := isRefusal(err); got != (code == codes.InvalidArgument) {
			t.Errorf("%s is a refusal: %v", code, got)
		}
		topics := map[codes.Code]bool{
			codes.NotFound: true, codes.PermissionDenied: true, codes.Unauthenticated: true,
			codes.ResourceExhausted: true, codes.FailedPrecondition: true,
		}
		if got := isTopicFault(err); got != topics[code] {
			t.Errorf("%s is the topic's fault: %v", code, got)
		}
	}
}

// TestAMissingGrantSpendsNoAttempt has a topic that the service may not publish to.
func TestAMissingGrantSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "a", 1, 2)
	b.append(t, "b", 1, 2)
	b.setFault(func(context.Context, *pubsubpb.PublishRequest, func(context.Context) error) error {
		return status.Error(codes.PermissionDenied, "no grant")
	})
	r := b.start(t)
	b.poll(t, func() bool { return r.pauses["video"].failures() >= 3 || b.count(t, attempted) > 0 }, "the topic is not paused")
	if cause, since := r.pauses["video"].reason(); cause != causeOutage || since.IsZero() {
		t.Errorf("paused by %q since %v", cause, since)
	}
	if n := b.count(t, attempted) + b.count(t, parked); n != 0 {
		t.Errorf("a missing grant spent %d attempts", n)
	}
	b.setFault(nil)
	b.eventually(t, 0, unpublished)
}
