package relaymodel

import "math/bits"

// snapshot is a pg_snapshot: it saw the transactions below next, without those in open. next is its xmax, and
// bit x of open says that transaction x was open. The zero snapshot means that there is none.
type snapshot struct{ next, open uint8 }

// none is no snapshot. beginning is a snapshot that saw no transaction. Transactions count from 1.
var none, beginning = snapshot{}, snapshot{next: 1}

func (s snapshot) saw(xact uint8) bool { return xact < s.next && s.open>>xact&1 == 0 }

// before is TxSnapshot.before of the package queue: it reports whether s saw less than t.
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

// oldest is xmin.
func (s snapshot) oldest() uint8 { return min(s.next, uint8(bits.TrailingZeros8(s.open))) }

// until is TxSnapshot.Until: the transactions that s did not see, without those that had not begun in t.
func (s snapshot) until(t snapshot) (set uint8) {
	set = s.open
	for x := s.next; x < t.next; x++ {
		set |= 1 << x
	}
	return set
}

// latest is queue.Latest.
func latest(s, t snapshot) snapshot {
	if s == none || t != none && s.before(t) {
		return t
	}
	return s
}

// earliest is queue.Earliest.
func earliest(all ...snapshot) (first snapshot) {
	for _, s := range all {
		if s != none && (first == none || s.before(first)) {
			first = s
		}
	}
	return first
}
