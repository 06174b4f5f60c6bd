package outbox

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestCircuitOpensOnFaultsInARow(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	lost := errors.New("connection reset")
	fail := func(err error) bool { _, tripped := c.failed(err, false); return tripped }
	for i := range tripAfter - 1 {
		if fail(lost) || c.open() {
			t.Fatalf("open after %d faults", i+1)
		}
	}
	c.succeeded()
	for range tripAfter - 1 {
		fail(lost)
	}
	if c.open() {
		t.Error("a success between faults does not count")
	}
	if !fail(lost) || !c.open() {
		t.Errorf("closed after %d faults in a row", tripAfter)
	}
	if fail(lost) || c.failures() != 1 {
		t.Error("what was in flight when it opened counts again")
	}
	if !c.succeeded() || c.open() || c.failures() != 0 {
		t.Error("a success does not close it")
	}
	if !fail(status.Error(codes.NotFound, "no such topic")) {
		t.Error("a missing topic does not open it at once")
	}
}

func TestCircuitGrantsOneProbe(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	if c.due() {
		t.Error("a closed circuit grants a probe")
	}
	c.failed(status.Error(codes.NotFound, "no such topic"), false)
	c.later(0)
	if !c.due() || c.due() {
		t.Error("want one probe, and no second beside it")
	}
	if _, tripped := c.failed(errors.New("in flight since before"), false); tripped || c.nextProbe().Before(time.Now()) {
		t.Error("another fault is taken for the probe's, which is still on its way")
	}
	if _, tripped := c.failed(errors.New("still out"), true); !tripped || c.failures() != 2 {
		t.Error("a failed probe does not count")
	}
}

// TestAHangingAggregateHoldsUpNobody has one aggregate whose publishes always
// fail, in the way of an outage.
func TestAHangingAggregateHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setFault(func(ctx context.Context, req *pubsubpb.PublishRequest, send func(context.Context) error) error {
		if req.Messages[0].OrderingKey == "hangs" {
			return status.Error(codes.DeadlineExceeded, "no answer")
		}
		return send(ctx)
	})
	b.append(t, "hangs", 1, 2)
	for i := range 20 {
		b.append(t, fmt.Sprint("a", i), 1, 2)
	}
	b.relay(t, 2)
	b.eventually(t, 2, unpublished)
	b.append(t, "a0", 3, 3)
	b.eventually(t, 2, unpublished)
	b.eventually(t, 1, `SELECT count(*) FROM outbox WHERE last_error LIKE '%no answer%' AND publish_attempts = 0`)
	b.setFault(nil)
	b.eventually(t, 0, unpublished)
	firstSightings(t, b.sent("hangs"), 2)
}

// TestATopicHoldsUpItsOwnTypesOnly deletes one of two topics.
func TestATopicHoldsUpItsOwnTypesOnly(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range 5 {
		b.append(t, fmt.Sprint("e", i), 1, 2)
		b.append(t, fmt.Sprint("v", i), 1, 2)
	}
	b.exec(t, `UPDATE outbox SET aggregate_type = 'engagement' WHERE aggregate_id LIKE 'e%'`)
	other := topic + ".other"
	b.topics["engagement"] = other
	b.relay(t, 2)
	b.eventually(t, 0, unpublished+` AND aggregate_type = 'video'`)
	if n := b.count(t, unpublished); n != 10 {
		t.Errorf("%d events wait, want the 10 whose topic is missing", n)
	}
	if _, err := b.client.TopicAdminClient.CreateTopic(t.Context(), &pubsubpb.Topic{Name: other}); err != nil {
		t.Fatal(err)
	}
	b.eventually(t, 0, unpublished)
	for i := range 5 {
		firstSightings(t, b.sent(fmt.Sprint("e", i)), 2)
	}
	if n := b.count(t, attempted); n != 0 {
		t.Errorf("a missing topic spent %d attempts", n)
	}
}

// TestRetentionDeletesWhatIsOld is the timer's part of it.
func TestRetentionDeletesWhatIsOld(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.append(t, "old", 1, 2)
	b.exec(t, `UPDATE outbox SET published_at = now() - interval '2 hours' WHERE version = 1`)
	r := b.newRelay(t)
	r.options.Retention = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = r.Run(ctx) }()
	b.eventually(t, 1, `SELECT count(*) FROM outbox`)
	b.eventually(t, 0, unpublished)
	cancel()
	<-ended
}
