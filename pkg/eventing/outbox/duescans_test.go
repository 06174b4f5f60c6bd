package outbox

import (
	"slices"
	"testing"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// A topic may be paused for hours, while another one is paused now and then. A search for probes of the other one, and the scan
// at its resume, read what was written since its own pause. The relay's low goes on to cover both.
func TestAResumeScansItsOwnTopic(t *testing.T) {
	t.Parallel()
	for name, resume := range map[string]func(a *followUps){
		"at the resume":  func(a *followUps) { a.topicResumed([]string{"short"}) },
		"during a claim": func(a *followUps) { a.setPausedTypes([]string{"long"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newFollowUps()
			skip := func(seen, claimed queue.TxSnapshot, paused ...string) {
				a.seen = seen
				a.setPausedTypes(paused)
				todo := a.take(1, paused...)
				a.claimEnded(queue.Claimed{Seen: claimed}, todo, todo.seen)
			}
			skip("10:10:", "20:20:", "long")
			skip("30:30:", "40:40:", "long", "short")
			probes := &probeScan{}
			a.search(probes, []string{"short"})
			if probes.low.snapshot != "30:30:" {
				t.Errorf("a search for probes begins at %q", probes.low.snapshot)
			}
			a.endSearch()
			resume(a)
			if from := a.beginScan().snapshot; from != "30:30:" {
				t.Errorf("the scan begins at %q", from)
			}
			if got := a.exclusions().paused; !slices.Equal(got, []string{"long"}) {
				t.Errorf("scans skip %v", got)
			}
			a.endScan()
			if low := a.low(newInFlight()); low != "10:10:" {
				t.Errorf("the low is %q", low)
			}
		})
	}
}
