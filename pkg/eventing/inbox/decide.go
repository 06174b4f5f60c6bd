package inbox

import (
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Kind decides which state a change requires.
type Kind int

// The kinds of changes.
const (
	// Created carries everything, and is an aggregate's first.
	Created Kind = iota + 1
	// Updated carries the difference to its direct predecessor.
	Updated
	// Deleted leaves a tombstone, from any state.
	Deleted
	// Snapshot carries everything: the state of a living aggregate as its
	// owner has it. (The state of a deleted one is Deleted.)
	Snapshot
	// Put carries everything too, of an aggregate that may return from its
	// deletion: as an event, or as its owner has it. It never is a gap.
	Put
	// Skipped carries nothing: its owner gave the event up. Only the owner's state
	// contains the change.
	Skipped
)

// Position is a read model's state of one aggregate. The zero Position is that of an
// unknown aggregate.
type Position struct {
	Epoch, Version int64
	// Deleted says that there is a tombstone.
	Deleted bool
	// EventID is the event that made Version, and At is when it occurred. Either
	// may be zero, for unknown: then it contradicts nothing.
	EventID uuid.UUID
	At      time.Time
	// Completeness is the row's; the zero value where a service keeps none.
	Completeness
}

// state is the part of a Position that rules depends on.
type state int

const (
	nothing state = iota
	alive
	tombstone
)

func (p Position) state() state {
	switch {
	case p.Version == 0:
		return nothing
	case p.Deleted:
		return tombstone
	}
	return alive
}

// same reports whether p and q are one position.
func (p Position) same(q Position) bool {
	return p.Epoch == q.Epoch && p.Version == q.Version && p.Deleted == q.Deleted && p.EventID == q.EventID && p.At.Equal(q.At)
}

// newerThan compares by (epoch, version).
func (p Position) newerThan(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Version > q.Version
}

// follows reports whether p is the version right after q.
func (p Position) follows(q Position) bool {
	return p.Epoch == q.Epoch && p.Version == q.Version+1
}

// positionOf is the position at which e leaves its aggregate.
func positionOf(e eventing.Event) Position {
	return Position{Epoch: e.Epoch, Version: e.Version, EventID: e.ID, At: e.OccurredAt}
}

// condition reports whether a change from one position to another is allowed.
type condition func(from, to Position) bool

// rules has the condition for each change that is newer than the row. An absent rule is
// a gap: only the owner knows the state.
//
//	change    on nothing    on a living aggregate     on a tombstone
//	Created   version 1     gap                       gap
//	Updated   gap           direct successor          gap
//	Deleted   applied       applied                   applied
//	Snapshot  applied       applied                   a later epoch: a deletion
//	                                                  is final within its own
//	Put       applied       applied                   applied
//	Skipped   gap           gap                       gap
var rules = map[Kind]map[state]condition{
	Created:  {nothing: isFirst},
	Updated:  {alive: isSuccessor},
	Deleted:  {nothing: always, alive: always, tombstone: always},
	Snapshot: {nothing: always, alive: always, tombstone: isLaterLife},
	Put:      {nothing: always, alive: always, tombstone: always},
}

func always(Position, Position) bool     { return true }
func isFirst(_, to Position) bool        { return to.Version == 1 }
func isSuccessor(from, to Position) bool { return to.follows(from) }
func isLaterLife(from, to Position) bool { return to.Epoch > from.Epoch }
func differ(known, other uuid.UUID) bool {
	return known != uuid.Nil && other != uuid.Nil && known != other
}
func isAfter(other, known time.Time) bool { return !known.IsZero() && other.After(known) }

// another reports whether p and q, of one version, are by different events. Where an id is
// unknown, the times decide: an event's time is that of the row that it has made.
func another(p, q Position) bool {
	if p.EventID != uuid.Nil && q.EventID != uuid.Nil {
		return p.EventID != q.EventID
	}
	return !p.At.IsZero() && !q.At.IsZero() && !p.At.Equal(q.At)
}

// Decide is the one rule by which a read model moves: the outcome of c if the model is
// at p. Positions compare by (epoch, version). A change of another history than p's is
// Diverged. A change that is not newer is Stale: seen, or overtaken. A newer one is
// Applied if its condition in rules holds, else it is a Gap.
func Decide(p Position, c Change) Outcome {
	to := positionOf(c.Event)
	switch {
	case contradicts(p, c.Event):
		return Diverged
	case !to.newerThan(p):
		return Stale
	}
	if allowed := rules[c.Kind][p.state()]; allowed != nil && allowed(p, to) {
		return Applied
	}
	return Gap
}

// contradicts reports whether e is of another history than p, within one epoch: the owner
// has lost commits and then made their versions a second time. There are three signs. There
// is another event at p of e's version (another). The event before e was another one than
// the one at p. Or e is below p and occurred later, or above and earlier. Unknown ids and
// times contradict nothing.
func contradicts(p Position, e eventing.Event) bool {
	to := positionOf(e)
	switch {
	case to.Epoch != p.Epoch:
		return false
	case to.Version == p.Version:
		return another(p, to)
	case to.Version < p.Version:
		return isAfter(to.At, p.At)
	}
	return to.follows(p) && differ(p.EventID, e.PreviousEventID) || isAfter(p.At, to.At)
}

// Completeness is a row's record of the build that wrote its state. An event may say more
// than the consumer's build understands: a field, or a type of event, that the owner's
// newer build writes. The consumer applies what it understands, the row moves to the
// event's version, and no gap ever tells that the rest is missing. So the row is
// incomplete, and a build that understands more takes the owner's state. The zero
// Completeness is that of a row from before the record: it counts as complete.
//
// A revision is a number that grows with what builds understand: see
// projection.Revision.
type Completeness struct {
	// Revision is that of the build that wrote the state.
	Revision int64
	// Incomplete says that the owner's state has more.
	Incomplete bool
}

// After is the completeness of a row after change, where it was c before.
//
// A change of everything makes a row complete, except one that a build of a higher
// revision has written: it has columns that this build does not know, and cannot clear.
// A change of a part keeps the rest: an incomplete row stays incomplete, and a complete
// one keeps the higher revision.
func (c Completeness) After(change Change) Completeness {
	switch {
	case change.Kind != Updated:
		return Completeness{Revision: change.Revision, Incomplete: change.Partial || c.Revision > change.Revision}
	case c.Incomplete:
		return Completeness{Revision: min(c.Revision, change.Revision), Incomplete: true}
	case change.Partial:
		return Completeness{Revision: change.Revision, Incomplete: true}
	}
	return Completeness{Revision: max(c.Revision, change.Revision)}
}

// improvedBy reports whether a state that a build of revision reads from the owner has more
// than the row, although it may be of the row's version.
func (c Completeness) improvedBy(revision int64) bool { return c.Incomplete && c.Revision < revision }
