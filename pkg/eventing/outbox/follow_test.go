package outbox

import (
	"testing"
	"time"
)

// An event is committed while its predecessor is on its way to the broker: every relay that
// saw it has passed over it. Settle sees it, and the next claim takes it, although nothing
// else calls for that claim. Where nothing follows, a published version is not worth a
// claim of its own: it goes along with others, a moment later.
func TestWhatFollowsIsClaimedNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	claimed := make(chan *leasedBatch, 10)
	var c claimSchedule
	look := func() *leasedBatch {
		t.Helper()
		r.step(t.Context(), &c, claimed)
		// No later claim is due as a poll.
		c.pollAt = time.Now().Add(time.Hour)
		select {
		case h := <-claimed:
			return h
		default:
			return nil
		}
	}
	if h := look(); h != nil || !r.followUps.due().registered {
		t.Fatal("the first turn has not joined the others")
	}
	c.pollAt = time.Time{}
	b.append(t, "a", 1, 1)
	settle := func(h *leasedBatch) {
		t.Helper()
		r.settleAll(t, publishResult{h, report{published: len(h.events)}})
		if n := b.count(t, leased); n != 0 {
			t.Fatalf("%d leases after all is settled", n)
		}
	}
	first := look()
	if first == nil {
		t.Fatal("the first claim has not taken what there is")
	}
	b.append(t, "a", 2, 3)
	if c.pollAt = (time.Time{}); look() != nil {
		t.Fatal("claimed what is behind what is in flight")
	}
	settle(first)
	second := look()
	if second == nil || second.events[0].Version != 2 || len(second.events) != 2 {
		t.Fatalf("claimed %+v, want what follows", second)
	}
	b.append(t, "a", 4, 4)
	settle(second)
	third := look()
	if third == nil || third.events[0].Version != 4 {
		t.Fatalf("claimed %+v, want what follows the last of a batch", third)
	}
	before := time.Now()
	settle(third)
	if lookAt := r.followUps.due().claimAt; lookAt.Before(before.Add(followUpDelay)) {
		t.Errorf("where nothing follows a look is due in %s", lookAt.Sub(before))
	}
}
