package consistency

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEveryWait tries reads, commits, notifications and the reads for waiting readers in each order within a
// scope, with the real code in virtual time. After each step the rest goes well, and then:
//
//   - A reader whose positions are committed ends at once if no notification was lost, and otherwise after a poll.
//   - No answer is older than its token, and no reader ends early or by the fault of another.
//   - The readers leave nothing behind.
//
// LOCKSTEP_FULL=1 explores larger scopes.
func TestEveryWait(t *testing.T) {
	t.Parallel()
	scopes := []waitScope{
		{name: "one reader", wants: [][2]int64{{1, 0}}, commits: 2, lost: 1, failures: 1},
		{name: "a connection that breaks", wants: [][2]int64{{1, 0}}, commits: 1, cuts: 1},
		{name: "two positions", wants: [][2]int64{{1, 1}}, commits: 2},
		{name: "a shared read", wants: [][2]int64{{1, 0}, {1, 0}}, commits: 1, lost: 1, failures: 1, cancels: 1},
		{name: "a failover", wants: [][2]int64{{2, 0}}, commits: 2, failovers: 1},
		{name: "one place", limit: 1, wants: [][2]int64{{1, 0}, {1, 0}}, commits: 1, cancels: 1},
		{name: "a drain", wants: [][2]int64{{1, 0}}, commits: 1, drains: 1},
	}
	if os.Getenv("LOCKSTEP_FULL") != "" {
		scopes = []waitScope{
			{name: "one reader", wants: [][2]int64{{2, 0}}, commits: 2, lost: 1, failures: 1, passes: 1},
			{name: "a connection that breaks", wants: [][2]int64{{1, 0}}, commits: 2, lost: 1, cuts: 1, passes: 1},
			{name: "two positions", wants: [][2]int64{{1, 1}}, commits: 2, lost: 1, failures: 1, passes: 1},
			{name: "a shared read", wants: [][2]int64{{1, 0}, {1, 0}, {1, 0}}, commits: 1, lost: 1, failures: 1, cancels: 1},
			{name: "a failover", wants: [][2]int64{{2, 0}, {1, 0}}, commits: 2, failovers: 1},
			{name: "one place", limit: 1, wants: [][2]int64{{1, 0}, {1, 0}}, commits: 2, lost: 1, failures: 1, cancels: 1},
			{name: "a drain", wants: [][2]int64{{1, 0}, {1, 1}}, commits: 1, drains: 1, failures: 1},
		}
	}
	for _, s := range scopes {
		s.explore(t)
	}
}

// waitScope bounds a search. wants has the versions of a and b that each reader requires, and limit is the
// number of places. The other numbers are how often some steps may happen.
type waitScope struct {
	name                                                              string
	limit                                                             int
	wants                                                             [][2]int64
	commits, lost, cuts, failures, failovers, passes, cancels, drains int
}

// explore tries the shortest series of steps first.
func (s waitScope) explore(t *testing.T) {
	t.Helper()
	known, runs := map[string]bool{}, 0
	for queue := [][]string{nil}; len(queue) > 0; queue, runs = queue[1:], runs+1 {
		synctest.Test(t, func(t *testing.T) {
			w := newWaitWorld(t, s, queue[0])
			if state := w.String(); !known[state] {
				known[state] = true
				for _, step := range w.steps() {
					queue = append(queue, append(slices.Clip(queue[0]), step.name))
				}
				w.finish()
			}
			w.leave()
		})
	}
	t.Logf("%s: %d states, %d runs", s.name, len(known), runs)
}

// finish takes good steps until only time changes anything, and looks for a promise that is broken.
func (w *waitWorld) finish() {
	settle := func() {
		for again := true; again; {
			all := w.steps()
			i := slices.IndexFunc(all, func(s waitStep) bool { return s.good })
			if again = i >= 0; again {
				w.take(all[i])
			}
		}
	}
	settle()
	if !w.missed && len(w.there) == 0 {
		w.check("at once")
	}
	for until := time.Now().Add(idlePoll + time.Second); time.Now().Before(until); settle() {
		w.pass(fallbackPoll)
		synctest.Wait()
	}
	w.check("after a poll")
}

func (w *waitWorld) check(when string) {
	drained := isClosed(w.waiters.drained)
	for i, r := range w.readers {
		answered := r.outcome == Fresh || r.outcome == Waited
		wrong := ""
		switch {
		case answered && !r.reached(r.seen):
			wrong = "an answer is older than its token"
		case r.cancelled && !r.ended:
			wrong = "a cancelled reader goes on"
		case answered, r.cancelled && errors.Is(r.err, context.Canceled), drained && errors.Is(r.err, errAsked):
		case w.left.limit > 0 && len(w.readers) > 1 && errors.Is(r.err, ErrTooManyWaiters):
		case w.reverted && r.reads > 1 && !r.ended: // the lost commit has ended the wait: it asks the owner later
		case r.reached(w.db) || r.ended:
			wrong = "a wait does not end as it should"
		}
		if wrong != "" {
			w.t.Errorf("%s: %s %s: reader %d wants %v of %v, has read %v: ended %t, %q, %v\n%s", w.left.name, wrong, when, i, r.wants,
				w.db, r.seen, r.ended, r.outcome, r.err, strings.Join(w.took, "\n"))
		}
	}
}

// leave cancels all readers, and looks for what they leave behind.
func (w *waitWorld) leave() {
	for _, r := range w.readers {
		r.cancel()
	}
	synctest.Wait()
	if !w.waiters.empty() || slices.ContainsFunc(w.readers, func(r *waitReader) bool { return !r.ended }) {
		w.t.Errorf("%s: something is left behind: %s\n%s", w.left.name, w, strings.Join(w.took, "\n"))
	}
}

// String has the state that decides about the next steps.
func (w *waitWorld) String() string {
	var s []string
	u := w.waiters
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, e := range u.entries {
		for r := range e.waiters {
			s = append(s, fmt.Sprint(key, r.wanted, r.missing, r.counted, r.refused))
		}
	}
	for key := range u.dirty {
		s = append(s, "dirty "+key)
	}
	slices.Sort(s)
	for _, r := range w.readers {
		s = append(s, fmt.Sprint("\n", r.under, r.snapped, r.seen, r.wants, r.cancelled, r.ended, r.reads, r.outcome, r.err))
	}
	return fmt.Sprint(s, u.count, u.bytes, len(u.wake), isClosed(u.drained), w.left, w.db, w.look.under, w.look.snapped, w.look.seen, w.asked,
		w.connected, w.here, w.there, w.missed, w.reverted)
}
