package outbox

import (
	"testing"
	"time"
)

// What was committed while its predecessor was on its way to the broker was passed
// over by every relay that saw it. The settling sees it, and the next look claims it,
// although nothing else has that look claim anything. Where nothing follows, a look
// is not worth a claim: it is made with others, a moment later.
func TestWhatFollowsIsClaimedNext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.newRelay(t)
	b.append(t, "a", 1, 1)
	claimed := make(chan *hold, 10)
	s := &search{again: true, aggregates: 10, steps: 10}
	look := func() *hold {
		t.Helper()
		if _, err := r.look(t.Context(), s, claimed); err != nil {
			t.Fatal(err)
		}
		// Neither a poll nor a walk is due at any later look.
		s.pollAt, s.walkAt = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
		select {
		case h := <-claimed:
			return h
		default:
			return nil
		}
	}
	settle := func(h *hold) {
		t.Helper()
		r.settleAll(t, landing{h, report{published: len(h.run)}})
		if n := b.count(t, leased); n != 0 {
			t.Fatalf("%d leases after all is settled", n)
		}
	}
	first := look()
	if first == nil || s.walking || s.again {
		t.Fatal("the first walk has not claimed what there is, or is not through")
	}
	b.append(t, "a", 2, 3)
	if h := look(); h != nil {
		t.Fatalf("claimed %v behind what is in flight", h.run)
	}
	settle(first)
	second := look()
	if second == nil || second.run[0].Version != 2 || len(second.run) != 2 {
		t.Fatalf("claimed %+v, want what follows", second)
	}
	b.append(t, "a", 4, 4)
	settle(second)
	third := look()
	if third == nil || third.run[0].Version != 4 {
		t.Fatalf("claimed %+v, want what follows the last of a run", third)
	}
	before := time.Now()
	settle(third)
	if n, lookAt := r.agenda.waiting(); n != 1 || lookAt.Before(before.Add(lookLater)) {
		t.Errorf("where nothing follows %d positions are to be looked behind, in %s", n, lookAt.Sub(before))
	}
}
