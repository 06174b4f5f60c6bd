package outbox

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// backlog commits versions 1..n of an aggregate in one transaction.
func (b *bench) backlog(t *testing.T, aggregate string, n int) {
	t.Helper()
	events := make([]eventing.Event, n)
	for i := range events {
		events[i] = event(aggregate, int64(i)+1)
	}
	if err := b.appendAll(t, events...); err != nil {
		t.Fatal(err)
	}
}

// TestVersionsPerRequestFollowTheBacklog has one aggregate far behind, and others that
// are not.
func TestVersionsPerRequestFollowTheBacklog(t *testing.T) {
	t.Parallel()
	const versions = 3000
	b := newBench(t)
	b.backlog(t, "hot", versions)
	b.appendEach(t, "a", 50)
	var requests, largest atomic.Int64
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if req.Messages[0].OrderingKey == "hot" {
			requests.Add(1)
			largest.Store(max(largest.Load(), int64(len(req.Messages))))
		}
		return send(ctx)
	})
	b.relay(t, 1)
	b.eventually(t, 0, unpublished)
	if n := requests.Load(); n > 10 {
		t.Errorf("%d requests for %d versions, want no more than 10", n, versions)
	}
	if n := largest.Load(); n > maxRequestMessages {
		t.Errorf("%d messages in one request, the broker takes %d", n, maxRequestMessages)
	}
	firstSightings(t, b.sent("hot"), versions)
}

func TestBatchLimitGrowsWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	batches := func(lengths ...int) (out []queue.Batch) {
		for _, n := range lengths {
			out = append(out, make(queue.Batch, n))
		}
		return out
	}
	for name, tc := range map[string]struct {
		per     int
		batches []queue.Batch
		want    int
	}{
		"nothing":                      {100, nil, 100},
		"none is behind":               {100, batches(99, 1, 5), 100},
		"one is behind":                {100, batches(100, 1, 5), 200},
		"as many as there is room for": {100, batches(100, 100, 100, 100, 100, 100, 100, 100, 100, 100), 200},
		"more than that":               {100, batches(100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100), 100},
		"one at the limit":             {800, batches(800), maxPerAggregate},
		"two fill a claim":             {1000, batches(1000, 1000), 500},
		"one fills it with others":     {1000, batches(1000, 900), 1000},
		"not below the least":          {100, batches(100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100), 100},
	} {
		r := &claimSize{versions: tc.per}
		r.observe(tc.batches, claimEvents)
		if _, got := r.limits(); got != tc.want {
			t.Errorf("%s: %d versions per aggregate, want %d", name, got, tc.want)
		}
	}
	large := queue.Batch{{Event: eventing.Event{Payload: make([]byte, claimBytes/2+1)}}}
	r := &claimSize{versions: 100}
	r.observe([]queue.Batch{append(make(queue.Batch, 99), large...)}, claimEvents)
	if _, got := r.limits(); got != 100 {
		t.Error("twice as many would not fit by their bytes")
	}
	for name, tc := range map[string]struct {
		batches []queue.Batch
		want    int
	}{
		"two fill a claim by their bytes": {[]queue.Batch{large, large}, 200},
		"one fills it alone":              {[]queue.Batch{append(large, large...)}, 400},
	} {
		r := &claimSize{versions: 400}
		r.observe(tc.batches, claimEvents)
		if _, got := r.limits(); got != tc.want {
			t.Errorf("%s: %d versions per aggregate, want %d", name, got, tc.want)
		}
	}
}

// TestABadEventAmongManyIsFoundInFewRequests refuses each request that has it.
func TestABadEventAmongManyIsFoundInFewRequests(t *testing.T) {
	t.Parallel()
	const versions, bad = 800, 500
	b := newBench(t)
	r := b.newRelay(t)
	batch := make(queue.Batch, versions)
	for i := range batch {
		batch[i] = queue.Event{Event: event("a", int64(i)+1)}
	}
	messages := 0
	b.setFault(func(_ context.Context, req *pubsubpb.PublishRequest, _ func(context.Context) error) error {
		messages += len(req.Messages)
		for _, m := range req.Messages {
			if m.Attributes[eventing.AttrVersion] == fmt.Sprint(bad) {
				return status.Error(codes.InvalidArgument, "bad")
			}
		}
		return nil
	})
	rep := r.publisher.publish(t.Context(), t.Context(), withLease(batch), r.pauses["video"])
	if rep.published != bad-1 || !rep.refused {
		t.Errorf("published %d, refused %v; want the %d before the bad one, and a verdict", rep.published, rep.refused, bad-1)
	}
	if rep.requests > 60 || messages > 4*versions {
		t.Errorf("%d requests with %d messages", rep.requests, messages)
	}
}
