package inbox

import (
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
)

// untilOpenedFor returns when the latest stream is one that was opened for want. A
// stream that breaks may be tried more than once.
func (w *world) untilOpenedFor(t *testing.T, want load) {
	t.Helper()
	pgtest.Until(t, "the latest stream is opened for what it should be", func() bool {
		all := w.opened()
		return len(all) > 0 && all[len(all)-1] == want
	})
}

// A stream asks for the room that there is, by messages and by bytes, and never for
// zero of either, which would be no bound. It is replaced when there is enough more
// room than it was opened for.
func TestStreamLimitsFollowTheFreeRoom(t *testing.T) {
	t.Parallel()
	const whole = worldBytes / 2
	for name, tc := range map[string]struct {
		inHand, opened load
		back, next     load // then so much is given back, and the next stream is opened for so much
	}{
		"most of it is free":     {inHand: load{maxMessages / 5, worldBytes / 5}, opened: load{maxMessages - maxMessages/5, (worldBytes - worldBytes/5) / 2}},
		"no room for a message":  {inHand: load{maxMessages, 0}, opened: load{1, whole}, back: load{maxMessages, 0}, next: load{maxMessages, whole}},
		"no room for a byte":     {inHand: load{1, worldBytes}, opened: load{maxMessages - 1, 1}, back: load{1, worldBytes}, next: load{maxMessages, whole}},
		"more in hand than fits": {inHand: load{1, 2 * worldBytes}, opened: load{maxMessages - 1, 1}, back: load{1, 2 * worldBytes}, next: load{maxMessages, whole}},
		"half, of which the double is more than there is": {
			inHand: load{maxMessages / 2, worldBytes / 2}, opened: load{maxMessages / 2, whole / 2},
			back: load{maxMessages / 4, worldBytes / 4}, next: load{maxMessages * 3 / 4, whole * 3 / 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 5)
			w.untilOpenedFor(t, load{maxMessages, whole})
			w.c.budget.acquire(t.Context(), tc.inHand)
			w.reopen(t)
			w.untilOpenedFor(t, tc.opened)
			if tc.back != (load{}) {
				w.c.budget.release(tc.back)
				w.untilOpenedFor(t, tc.next)
			}
		})
	}
}

// A message that the server is about to send as a wider stream takes over comes, and is
// delivered once. If it was lost, it would come a minute later as a second delivery.
func TestAWiderStreamLosesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	w.untilOpenedFor(t, load{maxMessages, worldBytes / 2})
	all := load{1, worldBytes}
	w.c.budget.acquire(t.Context(), all)
	w.reopen(t)
	w.untilOpenedFor(t, load{maxMessages - 1, 1})
	slow := localpubsub.Fault{Kind: localpubsub.Latency, Method: "StreamingPull", Delay: localpubsub.Duration(time.Second)}
	if err := w.server.SetFaults(1, slow); err != nil {
		t.Fatal(err)
	}
	w.publishRaw(t, event("a", 1).Message())
	w.c.budget.release(all)
	w.eventually(t, 1, withDone)
	pgtest.Until(t, "a wider stream is opened", func() bool {
		all := w.opened()
		return all[len(all)-1].bytes > worldBytes/4
	})
	w.stop()
	if w.most != 1 {
		t.Errorf("%d deliveries are counted", w.most)
	}
}

// reopen breaks the stream until another one is opened: a break passes by a stream that
// the server has not accepted yet.
func (w *world) reopen(t *testing.T) {
	t.Helper()
	before, next := len(w.opened()), time.Time{}
	pgtest.Until(t, "another stream is opened", func() bool {
		if time.Now().After(next) {
			w.breakStreams(t)
			next = time.Now().Add(time.Second)
		}
		return len(w.opened()) > before
	})
}

// The messages of a killed process wait for the end of their leases.
func TestAStreamsLeasesAreShort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 5)
	pgtest.Until(t, "a stream is open", func() bool { return len(w.opened()) > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lease != leaseTime {
		t.Errorf("a lease of %v", w.lease)
	}
}
