package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// If an owner's answer lacks an event and is younger than the event by lossTime, the owner
// has lost the event. The time covers clocks that differ, and a former primary that still
// answers while its successor takes over.
const lossTime = 30 * time.Second

// The two meanings of an owner's answer that lacks an event.
var (
	// ErrLost means that the owner has no such event any more. The event is to be
	// acknowledged, and counted.
	ErrLost = errors.New("the owner has lost this event")
	// ErrBehind means that the owner does not have the event yet, as far as its
	// answer tells: the answer may come from a replica. It is worth another try.
	ErrBehind = errors.New("the owner is behind its own event")
)

// Adopt is the rule for an owner's state: the outcome for c, which the owner had at asOf,
// where the model stands at p. The owner is the authority on its own history. Applied and
// Diverged mean that c replaces p; Diverged also means that p is of a history that the
// owner does not have. Stale means that p stays.
//
//	the owner's version is    p is replaced
//	higher                    always; diverged where p is the tombstone of an aggregate that
//	                          is final in its epoch, and the owner has it alive
//	the same                  where the events differ: diverged where that is certain;
//	                          or where p is incomplete, and c has more
//	lower                     where the owner has lost p (hasLost): diverged
//	of a lower epoch          never: a former owner
//
// But p stays where the answer may be from before p (mayBeFormer).
func Adopt(p Position, c Change, asOf time.Time) Outcome {
	to := positionOf(c.Event)
	switch {
	case mayBeFormer(to, p, asOf):
		return Stale
	case to.newerThan(p):
		if allowed := rules[c.Kind][p.state()]; allowed != nil && !allowed(p, to) {
			return Diverged
		}
		return Applied
	case p.newerThan(to):
		if hasLost(to, p, asOf) {
			return Diverged
		}
		return Stale
	case another(p, to):
		return Diverged
	case p.EventID != to.EventID, p.improvedBy(c.Revision):
		return Applied
	}
	return Stale
}

// Advance is the rule for the rows of an owner that are listed: Adopt, except that a row which
// is ahead of its owner's stays, unless the owner has changed the aggregate after it: that
// owner has lost the row's history, and has gone on without it. The age of an answer proves no
// loss here. A listing has all rows, so a former state of the owner, or a wrong one, would take
// the whole read model back. Such rows are for package reconcile, whose operator decides.
func Advance(p Position, c Change, asOf time.Time) Outcome {
	if to := positionOf(c.Event); p.newerThan(to) && !isAfter(to.At, p.At) {
		return Stale
	}
	return Adopt(p, c, asOf)
}

// Replace is the rule for a row that was found to differ from its owner, when it was at
// seen. A row that has moved since stays: whatever moved it is newer than the finding.
// Otherwise the rule is Adopt, and more: the owner's state also replaces a row of the same
// version, unless that may be another event's. Adopt takes such a row for equal; a row that
// was damaged in place is not. The time of a row from the future counts as unknown: no event has
// made it.
func Replace(seen, p Position, c Change, asOf time.Time) Outcome {
	to := positionOf(c.Event)
	if !p.same(seen) {
		return Stale
	}
	if fromFuture(p.At) {
		if p.Epoch == to.Epoch && p.Version > to.Version {
			return Diverged
		}
		p.At = time.Time{}
	}
	if p.Epoch != to.Epoch || p.Version != to.Version || differ(p.EventID, to.EventID) {
		return Adopt(p, c, asOf)
	}
	own := p.EventID != uuid.Nil && p.EventID == to.EventID
	if !own && mayBeFormer(to, p, asOf) {
		return Stale
	}
	return Applied
}

// fromFuture reports whether a time is past the present by more than clocks differ.
func fromFuture(at time.Time) bool { return at.After(time.Now().Add(lossTime)) }

// Has reports whether an owner that stood at owner, at asOf, has e in its history: its
// error is nil, or one that is ErrLost or ErrBehind. The zero asOf is unknown.
func Has(owner Position, e eventing.Event, asOf time.Time) error {
	switch at := positionOf(e); {
	case at.newerThan(owner) && !hasLost(owner, at, asOf), contradicts(owner, e) && mayBeFormer(owner, at, asOf):
		return fmt.Errorf("%w: it has version %d of %s, its event has %d", ErrBehind, owner.Version, e.Key(), e.Version)
	case at.newerThan(owner), contradicts(owner, e):
		return fmt.Errorf("%w: it has version %d of %s by event %s", ErrLost, owner.Version, e.Key(), owner.EventID)
	}
	return nil
}

// MayLag reports whether an owner's answer, of asOf, that it does not know e's aggregate
// may be from before e: then e may appear later. An answer of an unknown time counts as of
// now. There is no reason to wait for an event that occurred after now.
func MayLag(e eventing.Event, asOf time.Time) bool {
	return !e.OccurredAt.IsZero() && !fromFuture(e.OccurredAt) &&
		!cmp.Or(asOf, time.Now()).After(e.OccurredAt.Add(lossTime))
}

// hasLost reports whether an owner at the position owner, which is below at, once had at
// and has lost it. Either the owner has changed the aggregate after at, and has come to a
// lower version; or its whole database is past at by lossTime. An answer from a replica
// that lags shows neither. An owner in a lower epoch is a former one, however long it
// lives, or was restored and is still to begin an epoch: it says nothing about at.
func hasLost(owner, at Position, asOf time.Time) bool {
	return owner.Epoch == at.Epoch &&
		(isAfter(owner.At, at.At) || !at.At.IsZero() && asOf.After(at.At.Add(lossTime)))
}

// mayBeFormer reports whether an owner that stood at owner, at asOf, may have been a former
// primary, or a replica of one: its last change is from before at, and the answer is not
// younger than at by lossTime. Then the answer, although it contradicts at, is not from the
// owner of at. An answer of an unknown time is believed.
func mayBeFormer(owner, at Position, asOf time.Time) bool {
	return owner.Epoch == at.Epoch && !asOf.IsZero() && isAfter(at.At, owner.At) && !asOf.After(at.At.Add(lossTime))
}
