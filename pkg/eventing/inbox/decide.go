package inbox

import (
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Kind is the kind of a change. It decides in which states of a row the change may be applied:
// see rules.
type Kind int

// The kinds of changes.
const (
	// Created carries everything, and is the first change of an aggregate.
	Created Kind = iota + 1
	// Updated carries the difference to its direct predecessor.
	Updated
	// Deleted leaves a tombstone, from any state.
	Deleted
	// Snapshot carries everything. It is the state of a living aggregate as its owner has it.
	// (The owner's state of a deleted aggregate is a Deleted.)
	Snapshot
	// Put also carries everything, as an event or as the owner's state. A Put may bring a deleted
	// aggregate back. A Put is never a gap.
	Put
	// Skipped carries nothing, because its owner gave the event up. Only the owner's state
	// contains the change.
	Skipped
)

// Position is a read model's state of one aggregate. The zero Position means that the read model
// does not know the aggregate.
type Position struct {
	Epoch, Version int64
	// Deleted says that there is a tombstone.
	Deleted bool
	// EventID is the id of the event that made Version, and At is when that event occurred. A
	// zero value means unknown, and contradicts nothing.
	EventID uuid.UUID
	At      time.Time
	// Completeness is the completeness of the row. It is zero if the service keeps none.
	Completeness
}

// state is the part of a Position that selects a condition in the map rules.
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

// positionOf returns the position of e's aggregate after e.
func positionOf(e eventing.Event) Position {
	return Position{Epoch: e.Epoch, Version: e.Version, EventID: e.ID, At: e.OccurredAt}
}

// condition reports whether a change from one position to another is allowed.
type condition func(from, to Position) bool

// rules has the conditions under which a change that is newer than the row is applied. A change
// without a condition is a gap, because only the owner knows the state.
//
//	change    on nothing    on a living aggregate     on a tombstone
//	Created   version 1     gap                       gap
//	Updated   gap           direct successor          gap
//	Deleted   applied       applied                   applied
//	Snapshot  applied       applied                   applied in a later epoch, because a
//	                                                  deletion is final within its own epoch
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

// another reports whether p and q, which have one version, were made by different events. If
// either id is unknown, the times decide, because a row has the time of the event that made it.
func another(p, q Position) bool {
	if p.EventID != uuid.Nil && q.EventID != uuid.Nil {
		return p.EventID != q.EventID
	}
	return !p.At.IsZero() && !q.At.IsZero() && !p.At.Equal(q.At)
}

// Decide is the rule by which events move a read model. It returns the outcome of the change c if
// the model is at the position p. Positions compare by (epoch, version). A change of another
// history than p's is Diverged. A change that is not newer is Stale, because it was seen or
// overtaken. A newer change is Applied if its condition in rules holds, and otherwise is a Gap.
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

// contradicts reports whether e is of another history than p, within one epoch, because the owner
// has lost commits and then made their versions a second time. There are three signs. p has e's
// version, but by another event (another). Or e directly follows p, but e's predecessor is
// another event than p's. Or e is below p and occurred later, or is above p and occurred earlier.
// Unknown ids and times contradict nothing.
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

// Completeness records which build wrote a row's state, and whether the state is complete. An event
// may say more than the consumer's build understands, such as a field or a type of event that the
// owner's newer build writes. The consumer applies the part that it understands, and the row moves
// to the event's version, so no later gap shows that the rest is missing. Therefore the row is
// marked incomplete, and a build that understands more takes the owner's state. A row from before
// this record existed has the zero Completeness, and counts as complete.
//
// A revision is a number that is higher for a build that understands more: see
// projection.Revision.
type Completeness struct {
	// Revision is the revision of the build that wrote the state.
	Revision int64
	// Incomplete says that the owner's state has more than the row.
	Incomplete bool
}

// After returns the completeness of a row after change. c is the row's completeness before change.
//
// A change that carries everything makes the row complete, unless the change is partial or a
// build of a higher revision wrote the row. That build may have written columns that this build
// does not know, and cannot clear. A change of a part (Updated) keeps the rest of the row. So an
// incomplete row stays incomplete, and a complete row keeps the higher revision.
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

// improvedBy reports whether the owner's state, as a build with this revision reads it, has more
// than the row with the completeness c. The state and the row may have the same version.
func (c Completeness) improvedBy(revision int64) bool { return c.Incomplete && c.Revision < revision }
