package outbox

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

func TestProbesBackOff(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	c.pause(causeOutage)
	c.retryAt = time.Now().Add(time.Hour)
	if c.startProbe() != 0 || c.admits(0) {
		t.Error("a probe is due before its time, or something else is sent")
	}
	c.postpone(c.state, -time.Second)
	if c.startProbe() == 0 || !c.admits(c.state) {
		t.Error("a probe is not due although it was taken back, or is not sent")
	}
	longest := time.Duration(0)
	for range 50 {
		c.pause(causeOutage)
		longest = max(longest, time.Until(c.retryAt))
	}
	refuseEach(c, 0, "a", "b", "c")
	c.pauses, c.cause = 2, causeRefusals
	var batches []queue.Batch
	for _, id := range []string{"d", "e", "f", "g"} {
		batches = append(batches, queue.Batch{{Event: event(id, 1)}})
	}
	probes := chosen(c, batches)
	for range len(probes) - 1 {
		c.postpone(c.state, 0)
	}
	if v := c.refusal("d", c.state); len(probes) != 4 || !v.paused {
		t.Errorf("the last of %d probes, of which the others were taken back, does not count", len(probes))
	}
	if longest < outagePause.Cap/4 || longest > outagePause.Cap {
		t.Errorf("after 50 probes that failed, the longest pause is %s", longest)
	}
}

// Aggregates that were refused before a success of another one are probed last, until
// they succeed themselves.
func TestAKnownAggregateIsForgottenWhenItSucceeds(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	var batches []queue.Batch
	for _, id := range []string{"a", "b", "c", "d"} {
		batches = append(batches, queue.Batch{{Event: event(id, 1)}})
	}
	refuseEach(c, 0, batches[0].Key(), batches[1].Key())
	c.succeeded(batches[2].Key())
	c.pause(causeOutage)
	if probes := chosen(c, batches); len(probes) != 1 || probes[0].Key() != batches[2].Key() {
		t.Errorf("probes %v, want one of an aggregate that was not refused", probes)
	}
	c.succeeded(batches[0].Key())
	if n, _ := refuseEach(c, 0, batches[0].Key(), batches[2].Key(), batches[1].Key(), batches[3].Key()); n != 3 || !c.paused() {
		t.Errorf("%d verdicts, open %v; want those on two of three new ones and on the known one", n, c.paused())
	}
}

func TestProbesOfARefusingTopicWiden(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	var batches []queue.Batch
	for i := range 30 {
		batches = append(batches, queue.Batch{{Event: event(fmt.Sprintf("%02d", i), 1)}})
	}
	refuseEach(c, 0, batches[0].Key(), batches[1].Key(), batches[2].Key())
	for i, want := range []int{1, 4, 16} {
		c.postpone(c.state, 0)
		if c.startProbe() == 0 {
			t.Fatal("no probe is due")
		}
		probes := chosen(c, batches)
		if len(probes) != want || probes[0].Key() != batches[3+[]int{0, 1, 5}[i]].Key() {
			t.Fatalf("round %d: %d probes from %q, want %d of those never refused", i, len(probes), probes[0].Key(), want)
		}
		for j, p := range probes {
			if c.startProbe() != 0 {
				t.Error("probes are due while others are on their way")
			}
			if _, trips := refuseEach(c, c.state, p.Key()); (trips == 1) != (j == want-1) {
				t.Errorf("probe %d of %d: paused %d times", j, want, trips)
			}
		}
	}
	c.postpone(c.state, 0)
	state := c.startProbe()
	probes := chosen(c, batches)
	never := probes[len(probes)-4:] // refused before
	c.succeeded(never[0].Key())
	if n, _ := refuseEach(c, state, never[1].Key(), never[2].Key(), never[3].Key()); n != 0 || c.paused() {
		t.Error("the refusals of probes next to one that succeeded pause the topic again, or are verdicts")
	}
	if n, _ := refuseEach(c, 0, never[1].Key(), never[2].Key(), never[3].Key()); n != 3 || c.paused() {
		t.Error("they are not taken for bad events afterwards")
	}
}

// chosen are the next probes, in the order of batches.
func chosen(c *topicPause, batches []queue.Batch) (probes []queue.Batch) {
	heads := c.chooseProbes(c.state, batches)
	for _, r := range batches {
		if heads[r.Head()] {
			probes = append(probes, r)
		}
	}
	return probes
}

// A topic is back while candidates for its probes are claimed.
func TestCandidatesOfAResumedTopicAreNoProbes(t *testing.T) {
	t.Parallel()
	c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
	refuseEach(c, 0, "a", "b", "c")
	c.postpone(c.state, 0)
	state := c.startProbe()
	c.succeeded("e")
	if got := c.chooseProbes(state, []queue.Batch{batchOf(1, 1), batchOf(1, 1)}); len(got) != 0 {
		t.Errorf("%d probes", len(got))
	}
}

// A probe answers, or is not sent after all, when the topic is back and out again: the
// next probe is still on its way, and its answer decides.
func TestALateProbeDoesNotEndTheNextPause(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(*topicPause, int) bool{
		"a fault":        func(c *topicPause, probe int) bool { _, paused := c.failed(errors.New("out"), probe); return paused },
		"a refusal":      func(c *topicPause, probe int) bool { return c.refusal("x", probe).paused },
		"it is not sent": func(c *topicPause, probe int) bool { c.postpone(probe, 0); return false },
		"there was none": func(c *topicPause, probe int) bool { return c.resumeIdle(probe) },
		"it is sent now": func(c *topicPause, probe int) bool { return c.admits(probe) },
	} {
		c := newTopicPauses(map[string]string{"video": "t"}, outagePause)["video"]
		out := func() int {
			c.failed(status.Error(codes.NotFound, "no such topic"), 0)
			c.postpone(c.state, 0)
			return c.startProbe()
		}
		first := out()
		c.succeeded("a")
		if _, paused := c.failed(status.Error(codes.NotFound, "no such topic"), first); paused || c.paused() {
			t.Errorf("%s: a probe of the pause before pauses the topic", name)
		}
		second := out()
		before := c.retryAt
		if late(c, first) || c.failures() != 1 || !c.paused() || !c.retryAt.Equal(before) || c.startProbe() != 0 {
			t.Errorf("%s: counted for the next pause, in which a probe is on its way", name)
		}
		if _, paused := c.failed(errors.New("still out"), second); !paused || c.failures() != 2 {
			t.Errorf("%s: the probe of the next pause does not count any more", name)
		}
	}
}
