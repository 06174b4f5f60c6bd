package relaymodel

import "math/bits"

// snapshot models a pg_snapshot. It saw the transactions below next, except those in the set open. next
// is the snapshot's xmax. The zero snapshot means that there is none.
type snapshot struct{ next, open uint8 }

// none is no snapshot. beginning is a snapshot that saw no transaction. Transactions count from 1.
var none, beginning = snapshot{}, snapshot{next: 1}

func (s snapshot) saw(xact uint8) bool { return xact < s.next && s.open>>xact&1 == 0 }

// before models queue.TxSnapshot.before: it reports whether s saw less than t.
func (s snapshot) before(t snapshot) bool {
	switch {
	case s.next != t.next:
		return s.next < t.next
	case s.oldest() != t.oldest():
		return s.oldest() < t.oldest()
	default:
		return bits.OnesCount8(s.open) > bits.OnesCount8(t.open)
	}
}

// oldest is the snapshot's xmin: the oldest transaction that it did not see.
func (s snapshot) oldest() uint8 { return min(s.next, uint8(bits.TrailingZeros8(s.open))) }

// until models queue.TxSnapshot.Until. It returns the transactions that s did not see and that had begun
// in t.
func (s snapshot) until(t snapshot) (set uint8) {
	set = s.open
	for x := s.next; x < t.next; x++ {
		set |= 1 << x
	}
	return set
}

// latest models queue.Latest: it returns the snapshot that saw more.
func latest(s, t snapshot) snapshot {
	if s == none || t != none && s.before(t) {
		return t
	}
	return s
}

// earliest models queue.Earliest: it returns the snapshot that saw the least.
func earliest(all ...snapshot) (first snapshot) {
	for _, s := range all {
		if s != none && (first == none || s.before(first)) {
			first = s
		}
	}
	return first
}
