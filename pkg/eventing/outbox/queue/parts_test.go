package queue_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// part has the rows of the transactions first to last.
func part(first, last int) queue.Cursor {
	at := func(x int) queue.TxSnapshot { return queue.TxSnapshot(strconv.Itoa(x) + ":" + strconv.Itoa(x) + ":") }
	return at(first).Until(at(last + 1))[0]
}

// A scan from one place that is repeated adds nothing, whatever its parts were.
func TestPartsAreJoined(t *testing.T) {
	t.Parallel()
	var parts []queue.Cursor
	for range 3 {
		for _, p := range []queue.Cursor{part(5, 5), part(9, 9), part(20, 29), part(30, 39)} {
			parts = queue.Join(parts, p)
		}
	}
	if want := []queue.Cursor{part(5, 5), part(9, 9), part(20, 39)}; len(parts) != len(want) {
		t.Errorf("%v, want %v", parts, want)
	}
	if parts = queue.Join(parts, part(4, 100)); !slices.Equal(parts, []queue.Cursor{part(4, 100)}) {
		t.Errorf("%v, want one part of all", parts)
	}
}

// Joined parts have every transaction that was in one of them, and are few.
func TestJoinedPartsLoseNothing(t *testing.T) {
	t.Parallel()
	dice := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var parts []queue.Cursor
		in := map[int]bool{}
		for range 1 + dice.IntN(200) {
			first := 1 + dice.IntN(5000)
			last := first + dice.IntN(10)
			parts = queue.Join(parts, part(first, last))
			for x := first; x <= last; x++ {
				in[x] = true
			}
		}
		if len(parts) > 64 {
			t.Fatalf("%d parts", len(parts))
		}
		for x := range in {
			if joined := queue.Join(slices.Clone(parts), part(x, x)); len(joined) > len(parts) {
				t.Fatalf("%v have no transaction %d", parts, x)
			}
		}
	}
}

// The last page of a part without an end ends where the page did, or where new transactions
// began.
func TestAPartEndsWithItsPage(t *testing.T) {
	t.Parallel()
	all := queue.TxSnapshot("40:40:").Since()[0]
	for _, test := range []struct {
		page queue.Page
		want queue.Cursor
	}{
		{queue.Page{Next: part(47, 47)}, part(40, 46)},
		{queue.Page{Next: part(47, 47), Done: true, Claimed: queue.Claimed{Seen: "60:61:60"}}, part(40, 60)},
		{queue.Page{Next: part(80, 80), Done: true, Claimed: queue.Claimed{Seen: "60:61:60"}}, part(40, 79)},
	} {
		if got := all.Through(test.page); got != test.want {
			t.Errorf("%v, want %v", got, test.want)
		}
	}
}
