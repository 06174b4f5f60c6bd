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

func TestATopicIsPausedAfterFaultsInARow(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	lost := errors.New("connection reset")
	fail := func(err error) bool { _, paused := c.failed(err, 0); return paused }
	for i := range pauseAfter - 1 {
		if fail(lost) || c.paused() {
			t.Fatalf("open after %d faults", i+1)
		}
	}
	c.succeeded("a")
	for range pauseAfter - 1 {
		fail(lost)
	}
	if c.paused() {
		t.Error("a success between faults does not count")
	}
	if !fail(lost) || !c.paused() {
		t.Errorf("closed after %d faults in a row", pauseAfter)
	}
	if fail(lost) || c.failures() != 1 {
		t.Error("what was in flight when it opened counts again")
	}
	if !c.succeeded("a") || c.paused() || c.failures() != 0 {
		t.Error("a success does not close it")
	}
	if !fail(status.Error(codes.NotFound, "no such topic")) {
		t.Error("a missing topic does not open it at once")
	}
	c.succeeded("a")
	for range pauseAfter - 1 {
		fail(lost)
	}
	c.refusal("b", 0)
	if fail(lost) || c.paused() {
		t.Error("an answer between faults does not count")
	}
}

func TestAPauseGrantsOneProbe(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	if c.startProbe() != 0 {
		t.Error("a topic that is not paused grants a probe")
	}
	c.failed(status.Error(codes.NotFound, "no such topic"), 0)
	c.postpone(c.state, 0)
	if c.startProbe() == 0 || c.startProbe() != 0 {
		t.Error("want one probe, and no second one during it")
	}
	if _, paused := c.failed(errors.New("in flight since before"), 0); paused || c.nextProbe().Before(time.Now()) {
		t.Error("another fault is taken for the probe's, which is still on its way")
	}
	if _, paused := c.failed(errors.New("still out"), c.state); !paused || c.failures() != 2 {
		t.Error("a failed probe does not count")
	}
}

// One aggregate's publishes always fail, as in an outage.
func TestAHangingAggregateBlocksNoOther(t *testing.T) {
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

// refuseEach gives the topic one refusal of each aggregate: of probes of a state, or with
// 0 of other batches.
func refuseEach(c *topicPause, probe int, aggregates ...string) (onEvents, trips int) {
	for _, a := range aggregates {
		v := c.refusal(a, probe)
		if v.onEvent {
			onEvents++
		}
		if v.paused {
			trips++
		}
	}
	return onEvents, trips
}

func TestRefusalsInARowAreTheTopicsFault(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	if n, _ := refuseEach(c, 0, "a", "a", "a", "b", "a"); n != 5 || c.paused() {
		t.Fatalf("two aggregates are refused: %d verdicts, open %v", n, c.paused())
	}
	if n, trips := refuseEach(c, 0, "c", "a", "d"); n != 0 || trips != 1 || !c.paused() {
		t.Fatalf("the third: %d verdicts, paused %d times, open %v", n, trips, c.paused())
	}
	if cause, since := c.reason(); cause != causeRefusals || since.IsZero() {
		t.Errorf("paused by %q since %v", cause, since)
	}
	if !c.resumeIdle(c.state) || c.paused() {
		t.Error("with nothing to send, the topic is still paused")
	}
	if n, _ := refuseEach(c, 0, "a"); n != 0 || !c.paused() {
		t.Error("a pause that ended for want of a probe counts as a success")
	}
	if !c.succeeded("e") || c.paused() {
		t.Error("a success does not end the pause")
	}
	if n, _ := refuseEach(c, 0, "a", "b", "c", "d"); n != 4 || c.paused() {
		t.Errorf("refused before and after a success: %d verdicts of 4, open %v", n, c.paused())
	}
	if n, _ := refuseEach(c, 0, "x", "y", "z"); n != 2 || !c.paused() {
		t.Errorf("three others: %d verdicts, open %v", n, c.paused())
	}
}

func TestAParkedAggregateIsForgotten(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	refuseEach(c, 0, "a", "b", "c")
	c.succeeded("e")
	for _, a := range []string{"a", "b", "c"} {
		c.forget(a)
	}
	if n, _ := refuseEach(c, 0, "a", "b", "c"); n != refusedAfter-1 || !c.paused() {
		t.Errorf("%d verdicts, open %v", n, c.paused())
	}
}

func TestARefusedProbeSpendsNoAttempt(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	c.failed(status.Error(codes.NotFound, "no such topic"), 0)
	if n, _ := refuseEach(c, c.state, "a"); n != 0 || c.paused() {
		t.Error("an outage does not end with an answer, or the probe spends an attempt")
	}
	if n, _ := refuseEach(c, 0, "a"); n != 1 {
		t.Error("once the outage is over, a refusal is no verdict")
	}
}

func TestPauseMemoryIsBounded(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	for round := range 3 {
		for i := range maxRemembered + 10 {
			c.refusal(fmt.Sprint(round, "-", i), 0)
		}
		c.succeeded("good")
		if len(c.knownBad)+len(c.refused) > maxRemembered {
			t.Fatalf("%d aggregates are remembered", len(c.knownBad)+len(c.refused))
		}
	}
}
