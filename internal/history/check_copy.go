package history

import (
	"fmt"
	"slices"
)

// once checks P5: an event's effect is committed once. An event that the consumer has forgotten may
// be settled again, but must not change a row a second time.
func once(l life) (found []Violation) {
	settled, applied := map[string]Record{}, map[string]Record{}
	for _, r := range l.of(Effect, Forget, Apply) {
		first, again := settled[r.Event], false
		switch r.Kind { //nolint:exhaustive // of returns no other kinds
		case Forget:
			delete(settled, r.Event)
			continue
		case Effect:
			_, again = settled[r.Event]
			settled[r.Event] = r
		case Apply:
			if r.Event == "" {
				continue // the row took the owner's state, or an event that the test has not recorded
			}
			first, again = applied[r.Event]
			applied[r.Event] = r
		}
		if again {
			found = append(found, breaks("P5", "an event had its effect twice", first, r))
		}
	}
	return found
}

// settled checks P5: each delivered event was settled. An Effect or a Forget shows that.
func settled(l life) (found []Violation) {
	effects, forgotten := l.byEvent(Effect), l.byEvent(Forget)
	for event, d := range l.byEvent(Deliver) {
		_, ok := effects[event]
		if _, was := forgotten[event]; !ok && !was {
			found = append(found, breaks("P5", "an event was delivered and never settled", d))
		}
	}
	return found
}

// forward checks P6: a row only moves to later versions, and a deletion is final in its epoch. The
// change Whole may follow a deletion, because its aggregate may return from the deletion. After a
// divergence the owner's state replaces the row once, whatever the row's version. So each reported
// divergence excuses one violation.
func forward(l life) (found []Violation) {
	var at Record
	for _, r := range l.of(Apply) {
		if !r.position().after(at.position()) {
			found = append(found, breaks("P6", "a row did not move forward", at, r))
		}
		stays := r.Change == Deleted || r.Change == Whole || r.Epoch > at.Epoch
		if at.Change == Deleted && !stays && r.position().after(at.position()) {
			found = append(found, breaks("P6", "a deletion did not last", at, r))
		}
		at = r
	}
	if len(found) <= len(l.of(Report)) {
		return nil
	}
	return found
}

// gapless checks P7. A difference is applied only on its direct predecessor. Each version of a row
// in the read model has a content that the owner gave to the same version.
func gapless(l life) (found []Violation) {
	had := map[position]map[string]bool{}
	for _, w := range l.of(Write) {
		if had[w.position()] == nil {
			had[w.position()] = map[string]bool{}
		}
		had[w.position()][w.State] = true
	}
	var at Record
	for _, r := range l.of(Apply) {
		if r.Change == Delta && (r.Epoch != at.Epoch || r.Version != at.Version+1) {
			found = append(found, breaks("P7", "a difference was applied on something else than its predecessor", at, r))
		}
		if r.Change == Created && (at.Version != 0 || r.Version != 1) {
			found = append(found, breaks("P7", "a first version was applied on something", at, r))
		}
		if r.State != "" && !had[r.position()][r.State] {
			found = append(found, breaks("P7", "the owner never had this state at this version", r))
		}
		at = r
	}
	return found
}

// reported checks P7. A row may have taken on a version that the owner then lost. Such a row must
// have been reported as diverged, unless its next change was a repair, a whole state or a deletion.
func reported(l life) (found []Violation) {
	lost, applies := l.byEvent(Lost), l.of(Apply)
	for i, r := range applies {
		replaced := i+1 < len(applies) && slices.Contains([]Change{Repair, Whole, Deleted}, applies[i+1].Change)
		if _, gone := lost[r.Event]; gone && !replaced && len(l.of(Report)) == 0 {
			found = append(found, breaks("P7", "a lost write was applied, and no divergence reported", r))
		}
	}
	return found
}

// mayLag has the modes in which a reader accepts an older answer than its token demands. It maps
// each mode to the outcomes that the reader may get in that mode.
var mayLag = map[string]map[Outcome]bool{
	"at-least-as-fresh;stale-if-error": {Stale: true},
	"minimize-latency":                 {Stale: true, Absent: true},
}

// fresh checks P8. An answer must be no older than the reader's token. An older answer is allowed
// if the reader's mode accepts it and the answer says so. A refusal with a time to retry is
// allowed, too.
func fresh(l life) (found []Violation) {
	for _, r := range l.of(Read) {
		ok := false
		switch r.Outcome {
		case Shown:
			ok = r.Version >= r.Least
		case Stale, Absent:
			ok = mayLag[r.Mode][r.Outcome]
		case Unavailable:
			ok = true
		case Unexpected:
		}
		if !ok {
			says := fmt.Sprintf("a read that asks for version %d was answered %q with version %d", r.Least, r.Outcome, r.Version)
			found = append(found, breaks("P8", says, r))
		}
	}
	return found
}

// converged checks one part of P10: at the end of the run the read model has the owner's state.
func converged(l life) (found []Violation) {
	ends := map[Kind]Record{}
	for _, r := range l.of(Owner, Copy) {
		ends[r.Kind] = r
	}
	owner, copied := ends[Owner], ends[Copy]
	_, known := ends[Copy]
	if !known && len(l.of(Apply)) == 0 {
		return nil // no read model is part of the run
	}
	if owner.position() != copied.position() || owner.State != copied.State {
		found = append(found, breaks("P10", "the read model differs from its owner", owner, copied))
	}
	return found
}
