package inbox

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// lossTime is a duration after an event. If the owner answers later than that, and its answer lacks
// the event, the owner has lost the event. lossTime allows for clocks that differ. It also allows for
// a former primary that still answers while its successor takes over.
const lossTime = 30 * time.Second

// The two meanings of an owner's answer that lacks an event.
var (
	// ErrLost means that the owner has no such event any more. The consumer acknowledges and counts
	// the event.
	ErrLost = errors.New("the owner has lost this event")
	// ErrBehind means that the owner's answer may be from before the event. The answer may come
	// from a replica that lags, so another try may succeed.
	ErrBehind = errors.New("the owner is behind its own event")
)

// Adopt is the rule for an owner's state. The change c is the owner's state as of the time asOf,
// and p is the position of the model. Adopt returns the outcome of c. The owner is the authority on
// its own history. Applied and Diverged mean that c replaces p. Diverged also means that p is of a
// history that the owner does not have. Stale means that p stays.
//
//	the owner's version is    p is replaced
//	higher                    always. The outcome is Diverged if p is a tombstone that is final
//	                          in its epoch, but the owner has the aggregate alive.
//	the same                  if the events differ (Diverged if that is certain), or if p is
//	                          incomplete and c has more
//	lower                     if the owner has lost p (hasLost). The outcome is Diverged.
//	of a lower epoch          never, because the answer is a former owner's
//
// But p stays if the answer may be from before p (mayBeFormer).
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

// Advance is the rule for an owner's state from a listing of all its rows. Advance is Adopt with
// one exception. A row that is ahead of its owner's row stays, unless the owner has changed the
// aggregate after the row's change. An owner with such a change has lost the row's history, and has
// gone on without it. For Adopt the age of an answer can prove a loss, but for Advance it cannot. A
// listing has all rows. If it came from a former state or from a wrong owner, it would take the
// whole read model back. Package reconcile reports such rows, and its operator decides.
func Advance(p Position, c Change, asOf time.Time) Outcome {
	if to := positionOf(c.Event); p.newerThan(to) && !isAfter(to.At, p.At) {
		return Stale
	}
	return Adopt(p, c, asOf)
}

// Replace is the rule for a row that was found to differ from its owner's row. seen is the position
// at which the row was found to differ, and p is the row's present position. A row that has moved
// since then stays, because the move is newer than the finding. Otherwise the rule is Adopt, with
// two exceptions:
//
//   - The owner's state also replaces a row of the same version and event. Adopt takes such a row
//     for equal, but the row may have been damaged in place. If an event id is unknown, the row
//     stays while the answer may be from before the row (mayBeFormer).
//   - A row's time in the future counts as unknown, because no event has made such a time. If such
//     a row has a higher version than its owner's row, in the same epoch, it is replaced
//     (Diverged).
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

// fromFuture reports whether the time at is more than lossTime later than the present. Clocks
// differ by less than that.
func fromFuture(at time.Time) bool { return at.After(time.Now().Add(lossTime)) }

// Has reports whether an owner has e in its history. The Position owner is the owner's position as
// of the time asOf. Has returns nil if the owner has e, and otherwise an error that wraps ErrLost
// or ErrBehind. A zero asOf means that the time is unknown.
func Has(owner Position, e eventing.Event, asOf time.Time) error {
	switch at := positionOf(e); {
	case ofOtherTenant(owner, at):
		return fmt.Errorf("%w: %s is of another tenant", ErrLost, e.Key())
	case at.newerThan(owner) && !hasLost(owner, at, asOf), contradicts(owner, e) && mayBeFormer(owner, at, asOf):
		return fmt.Errorf("%w: it has version %d of %s, its event has %d", ErrBehind, owner.Version, e.Key(), e.Version)
	case at.newerThan(owner), contradicts(owner, e):
		return fmt.Errorf("%w: it has version %d of %s by event %s", ErrLost, owner.Version, e.Key(), owner.EventID)
	}
	return nil
}

// MayLag is for an owner's answer that does not know e's aggregate. It reports whether the answer
// may be from before e, so that a later answer may know e. asOf is the time of the answer. A zero
// asOf counts as the present. For an event that occurred in the future MayLag is false, because
// there is no reason to wait for such an event.
func MayLag(e eventing.Event, asOf time.Time) bool {
	return !e.OccurredAt.IsZero() && !fromFuture(e.OccurredAt) &&
		!cmp.Or(asOf, time.Now()).After(e.OccurredAt.Add(lossTime))
}

// hasLost reports whether an owner once had the position at and has lost it. The Position owner is
// the owner's position as of the time asOf, and is below at. The owner has lost at in two cases.
// Either the owner's last change is later than at, although its version is lower. Or the answer is
// more than lossTime later than at. An answer from a replica that lags shows neither. An owner in a
// lower epoch is a former owner, or was restored and has not begun an epoch yet. The answer of such
// an owner shows nothing about at, however late it comes.
func hasLost(owner, at Position, asOf time.Time) bool {
	return owner.Epoch == at.Epoch &&
		(isAfter(owner.At, at.At) || !at.At.IsZero() && asOf.After(at.At.Add(lossTime)))
}

// mayBeFormer reports whether an owner may have been a former primary, or a replica of one. The
// Position owner is the owner's position as of asOf. The owner may be a former primary if its last
// change is earlier than at, and its answer is not more than lossTime later than at. If such an
// answer contradicts at, that proves nothing, because the present primary may have at. If the time
// of the answer is unknown, mayBeFormer returns false.
func mayBeFormer(owner, at Position, asOf time.Time) bool {
	return owner.Epoch == at.Epoch && !asOf.IsZero() && isAfter(at.At, owner.At) && !asOf.After(at.At.Add(lossTime))
}
