package outbox

import "slices"

// This file shares the room for batches in flight among the goroutines that claim.

// claimant is one of the goroutines that share the room for claims.
type claimant int

const (
	byClaim claimant = iota
	byScan
	byTurn
	claimants
)

// reserve reserves room for one more claim until add or release is called, and reports whether
// there was room. If several claimants wait for room, the claimant whose latest grant is the
// oldest comes first.
func (f *inFlight) reserve(by claimant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	claims := f.reserved + 1
	if f.events+claims*claimEvents > maxEvents || f.bytes+claims*claimBytes > maxBytes || f.isAnothersTurn(by) {
		f.waiting[by] = true
		return false
	}
	f.reserved, f.served[by], f.waiting[by] = claims, slices.Max(f.served[:])+1, false
	return true
}

// withdraw notes that a claimant no longer waits for room. From now on this claimant keeps no other
// claimant from getting room.
func (f *inFlight) withdraw(by claimant) {
	f.mu.Lock()
	waited := f.waiting[by]
	f.waiting[by] = false
	f.mu.Unlock()
	if waited {
		f.signalRoom()
	}
}

// isAnothersTurn expects the lock. It reports whether another claimant that waits for room comes before
// the claimant by, because its latest grant is older.
func (f *inFlight) isAnothersTurn(by claimant) bool {
	for other, waits := range f.waiting {
		if waits && f.served[other] < f.served[by] {
			return true
		}
	}
	return false
}

// release gives back the room that was reserved for a claim, if the claim has no result to add.
func (f *inFlight) release() {
	f.mu.Lock()
	f.reserved--
	f.mu.Unlock()
	f.signalRoom()
}

func (f *inFlight) signalRoom() {
	for _, c := range f.room {
		signal(c)
	}
}

// hasRoomForProbes reports whether there is room for the candidates of another probe. Only one
// goroutine claims candidates, so it need not reserve the room.
func (f *inFlight) hasRoomForProbes() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.candidates+candidatesPerProbe <= maxCandidates
}
