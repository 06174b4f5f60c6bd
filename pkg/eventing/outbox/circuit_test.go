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

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestCircuitOpensOnFaultsInARow(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	lost := errors.New("connection reset")
	fail := func(err error) bool { _, tripped := c.failed(err, 0); return tripped }
	for i := range tripAfter - 1 {
		if fail(lost) || c.open() {
			t.Fatalf("open after %d faults", i+1)
		}
	}
	c.succeeded("a")
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
	if !c.succeeded("a") || c.open() || c.failures() != 0 {
		t.Error("a success does not close it")
	}
	if !fail(status.Error(codes.NotFound, "no such topic")) {
		t.Error("a missing topic does not open it at once")
	}
	c.succeeded("a")
	for range tripAfter - 1 {
		fail(lost)
	}
	c.refusal("b", 0)
	if fail(lost) || c.open() {
		t.Error("an answer between faults does not count")
	}
}

func TestProbesBackOff(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	c.trip(causeOutage)
	c.retryAt = time.Now().Add(time.Hour)
	if c.due() != 0 || c.admits(0) {
		t.Error("a probe is due before its time, or something else is sent")
	}
	if c.later(c.state, -time.Second); c.due() == 0 || !c.admits(c.state) {
		t.Error("a probe is not due although it was taken back, or is not sent")
	}
	longest := time.Duration(0)
	for range 50 {
		c.trip(causeOutage)
		longest = max(longest, time.Until(c.retryAt))
	}
	refuseEach(c, 0, "a", "b", "c")
	c.trips, c.cause = 2, causeRefusals
	var runs []queue.Run
	for _, id := range []string{"d", "e", "f", "g"} {
		runs = append(runs, queue.Run{{Event: event(id, 1)}})
	}
	probes := chosen(c, runs)
	for range len(probes) - 1 {
		c.later(c.state, 0)
	}
	if v := c.refusal("d", c.state); len(probes) != 4 || !v.tripped {
		t.Errorf("the last of %d probes, of which the others were taken back, does not count", len(probes))
	}
	if longest < outage.Cap/4 || longest > outage.Cap {
		t.Errorf("after 50 probes that failed, the longest pause is %s", longest)
	}
}

// Aggregates that were refused before a success of another one are probed last, until
// they succeed themselves.
func TestAKnownAggregateIsForgottenWhenItSucceeds(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	var runs []queue.Run
	for _, id := range []string{"a", "b", "c", "d"} {
		runs = append(runs, queue.Run{{Event: event(id, 1)}})
	}
	refuseEach(c, 0, runs[0].Key(), runs[1].Key())
	c.succeeded(runs[2].Key())
	c.trip(causeOutage)
	if probes := chosen(c, runs); len(probes) != 1 || probes[0].Key() != runs[2].Key() {
		t.Errorf("probes %v, want one of an aggregate that was not refused", probes)
	}
	c.succeeded(runs[0].Key())
	if n, _ := refuseEach(c, 0, runs[0].Key(), runs[2].Key(), runs[1].Key(), runs[3].Key()); n != 3 || !c.open() {
		t.Errorf("%d verdicts, open %v; want those on two of three new ones and on the known one", n, c.open())
	}
}

func TestCircuitGrantsOneProbe(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	if c.due() != 0 {
		t.Error("a closed circuit grants a probe")
	}
	c.failed(status.Error(codes.NotFound, "no such topic"), 0)
	c.later(c.state, 0)
	if c.due() == 0 || c.due() != 0 {
		t.Error("want one probe, and no second beside it")
	}
	if _, tripped := c.failed(errors.New("in flight since before"), 0); tripped || c.nextProbe().Before(time.Now()) {
		t.Error("another fault is taken for the probe's, which is still on its way")
	}
	if _, tripped := c.failed(errors.New("still out"), c.state); !tripped || c.failures() != 2 {
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

// refuseEach has the circuit told of one refusal of each aggregate: of probes of a state,
// or with 0 of others.
func refuseEach(c *circuit, probe int, aggregates ...string) (onEvents, trips int) {
	for _, a := range aggregates {
		v := c.refusal(a, probe)
		if v.onEvent {
			onEvents++
		}
		if v.tripped {
			trips++
		}
	}
	return onEvents, trips
}

func TestRefusalsInARowAreTheTopicsFault(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	if n, _ := refuseEach(c, 0, "a", "a", "a", "b", "a"); n != 5 || c.open() {
		t.Fatalf("two aggregates are refused: %d verdicts, open %v", n, c.open())
	}
	if n, trips := refuseEach(c, 0, "c", "a", "d"); n != 0 || trips != 1 || !c.open() {
		t.Fatalf("the third: %d verdicts, tripped %d times, open %v", n, trips, c.open())
	}
	if cause, since := c.pause(); cause != causeRefusals || since.IsZero() {
		t.Errorf("paused by %q since %v", cause, since)
	}
	if !c.idle(c.state) || c.open() {
		t.Error("with nothing to send, the topic is still paused")
	}
	if n, _ := refuseEach(c, 0, "a"); n != 0 || !c.open() {
		t.Error("a pause that ended for want of a probe counts as a success")
	}
	if !c.succeeded("e") || c.open() {
		t.Error("a success does not end the pause")
	}
	if n, _ := refuseEach(c, 0, "a", "b", "c", "d"); n != 4 || c.open() {
		t.Errorf("refused before and after a success: %d verdicts of 4, open %v", n, c.open())
	}
	if n, _ := refuseEach(c, 0, "x", "y", "z"); n != 2 || !c.open() {
		t.Errorf("three others: %d verdicts, open %v", n, c.open())
	}
}

func TestAParkedAggregateIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	refuseEach(c, 0, "a", "b", "c")
	c.succeeded("e")
	for _, a := range []string{"a", "b", "c"} {
		c.parked(a)
	}
	if n, _ := refuseEach(c, 0, "a", "b", "c"); n != refusedAfter-1 || !c.open() {
		t.Errorf("%d verdicts, open %v", n, c.open())
	}
}

func TestARefusedProbeSpendsNothing(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	c.failed(status.Error(codes.NotFound, "no such topic"), 0)
	if n, _ := refuseEach(c, c.state, "a"); n != 0 || c.open() {
		t.Error("an outage does not end with an answer, or the probe spends an attempt")
	}
	if n, _ := refuseEach(c, 0, "a"); n != 1 {
		t.Error("once the outage is over, a refusal is no verdict")
	}
}

func TestProbesOfARefusingTopicWiden(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	var runs []queue.Run
	for i := range 30 {
		runs = append(runs, queue.Run{{Event: event(fmt.Sprintf("%02d", i), 1)}})
	}
	refuseEach(c, 0, runs[0].Key(), runs[1].Key(), runs[2].Key())
	for i, want := range []int{1, 4, 16} {
		c.later(c.state, 0)
		if c.due() == 0 {
			t.Fatal("no probe is due")
		}
		probes := chosen(c, runs)
		if len(probes) != want || probes[0].Key() != runs[3+[]int{0, 1, 5}[i]].Key() {
			t.Fatalf("round %d: %d probes from %q, want %d of those never refused", i, len(probes), probes[0].Key(), want)
		}
		for j, p := range probes {
			if c.due() != 0 {
				t.Error("probes are due while others are on their way")
			}
			if _, trips := refuseEach(c, c.state, p.Key()); (trips == 1) != (j == want-1) {
				t.Errorf("probe %d of %d: tripped %d times", j, want, trips)
			}
		}
	}
	c.later(c.state, 0)
	state := c.due()
	probes := chosen(c, runs)
	never := probes[len(probes)-4:] // refused before
	c.succeeded(never[0].Key())
	if n, _ := refuseEach(c, state, never[1].Key(), never[2].Key(), never[3].Key()); n != 0 || c.open() {
		t.Error("the refusals of probes beside one that succeeded open the circuit again, or are verdicts")
	}
	if n, _ := refuseEach(c, 0, never[1].Key(), never[2].Key(), never[3].Key()); n != 3 || c.open() {
		t.Error("they are not taken for bad events afterwards")
	}
}

// chosen are the next probes, in the order of runs.
func chosen(c *circuit, runs []queue.Run) (probes []queue.Run) {
	heads := c.choose(c.state, runs)
	for _, r := range runs {
		if heads[r.Head()] {
			probes = append(probes, r)
		}
	}
	return probes
}

func TestACircuitRemembersSoMany(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	for round := range 3 {
		for i := range maxRemembered + 10 {
			c.refusal(fmt.Sprint(round, "-", i), 0)
		}
		c.succeeded("good")
		if len(c.known)+len(c.refused) > maxRemembered {
			t.Fatalf("%d aggregates are remembered", len(c.known)+len(c.refused))
		}
	}
}

// A topic is back while candidates for its probes are claimed.
func TestCandidatesOfATopicThatIsBackAreNoProbes(t *testing.T) {
	t.Parallel()
	c := newCircuits(map[string]string{"video": "t"})["video"]
	refuseEach(c, 0, "a", "b", "c")
	c.later(c.state, 0)
	state := c.due()
	c.succeeded("e")
	if got := c.choose(state, []queue.Run{run(1, 1), run(1, 1)}); len(got) != 0 {
		t.Errorf("%d probes", len(got))
	}
}

// A probe answers, or is not sent after all, when the topic is back and out again: the
// next probe is still on its way, and its answer decides.
func TestALateProbeSaysNothingOfTheNextPause(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(*circuit, int) bool{
		"a fault":        func(c *circuit, probe int) bool { _, tripped := c.failed(errors.New("out"), probe); return tripped },
		"a refusal":      func(c *circuit, probe int) bool { return c.refusal("x", probe).tripped },
		"it is not sent": func(c *circuit, probe int) bool { c.later(probe, 0); return false },
		"there was none": func(c *circuit, probe int) bool { return c.idle(probe) },
		"it is sent now": func(c *circuit, probe int) bool { return c.admits(probe) },
	} {
		c := newCircuits(map[string]string{"video": "t"})["video"]
		out := func() int {
			c.failed(status.Error(codes.NotFound, "no such topic"), 0)
			c.later(c.state, 0)
			return c.due()
		}
		first := out()
		c.succeeded("a")
		if _, tripped := c.failed(status.Error(codes.NotFound, "no such topic"), first); tripped || c.open() {
			t.Errorf("%s: a probe of the pause before opens a circuit", name)
		}
		second := out()
		before := c.retryAt
		if late(c, first) || c.failures() != 1 || !c.open() || !c.retryAt.Equal(before) || c.due() != 0 {
			t.Errorf("%s: counted for the next pause, in which a probe is on its way", name)
		}
		if _, tripped := c.failed(errors.New("still out"), second); !tripped || c.failures() != 2 {
			t.Errorf("%s: the probe of the next pause does not count any more", name)
		}
	}
}
