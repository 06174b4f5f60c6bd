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
	// Created carries the whole state, and is the first change of an aggregate.
	Created Kind = iota + 1
	// Updated carries the difference to the version right before it.
	Updated
	// Deleted leaves a tombstone, from any state.
	Deleted
	// Snapshot carries the whole state of a living aggregate, as its owner has it. (For a deleted
	// aggregate, the owner's state is a Deleted.)
	Snapshot
	// Put also carries the whole state. It is an event or the owner's state. A Put may bring a
	// deleted aggregate back. A Put is never a gap.
	Put
	// Skipped carries nothing, because the owner's operator gave the event up. Only the owner's state has
	// the change of the event. So a Skipped that is newer than the row is a gap.
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
	// Tenant is the tenant that the aggregate belongs to. It is empty if the service keeps none.
	Tenant string
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

// same reports whether p and q are the same position.
func (p Position) same(q Position) bool {
	return p.Epoch == q.Epoch && p.Version == q.Version && p.Deleted == q.Deleted && p.EventID == q.EventID && p.At.Equal(q.At)
}

// newerThan reports whether p is newer than q. The epochs are compared first, then the versions.
func (p Position) newerThan(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Version > q.Version
}

// follows reports whether p is the version right after q.
func (p Position) follows(q Position) bool {
	return p.Epoch == q.Epoch && p.Version == q.Version+1
}

// positionOf returns the position of e's aggregate after e.
func positionOf(e eventing.Event) Position {
	return Position{Epoch: e.Epoch, Version: e.Version, EventID: e.ID, At: e.OccurredAt, Tenant: e.TenantID}
}

// condition reports whether a change from one position to another is allowed.
type condition func(from, to Position) bool

// rules has the conditions under which a change that is newer than the row is applied. If there is
// no condition for the change and the row's state, or if the condition does not hold, the change is
// a gap. Then only the owner knows the next state.
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

// another reports whether different events made p and q, which have the same version. If either id
// is unknown, the times decide, because At is the time of the event that made the position.
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

// contradicts reports whether e is of another history than p. Within an epoch that happens if the
// owner has lost commits and then assigned their versions a second time. There are three signs:
//
//   - p has e's version, but another event made p (another).
//   - e directly follows p, but the event before e is another event than the one that made p.
//   - e has a lower version than p and a later time, or a higher version and an earlier time. If e directly
//     follows p, the time tells only if one of the ids is unknown.
//
// Unknown ids and times contradict nothing.
//
// An event of another tenant is of another history, too, whatever its epoch. An aggregate never changes
// its tenant. If such an event moved the row, the other tenant's readers would see the row.
func contradicts(p Position, e eventing.Event) bool {
	to := positionOf(e)
	switch {
	case ofOtherTenant(p, to):
		return true
	case to.Epoch != p.Epoch:
		return false
	case to.Version == p.Version:
		return another(p, to)
	case to.Version < p.Version:
		return isAfter(to.At, p.At)
	}
	if to.follows(p) && p.EventID != uuid.Nil && e.PreviousEventID != uuid.Nil {
		return e.PreviousEventID != p.EventID // the ids tell, whatever the clocks say
	}
	return isAfter(p.At, to.At)
}

// ofOtherTenant reports whether p and q are certainly of different tenants.
func ofOtherTenant(p, q Position) bool {
	return p.Tenant != "" && q.Tenant != "" && p.Tenant != q.Tenant
}

// Completeness records which build wrote a row's state, and whether the state is complete. An event
// may contain more than the consumer's build understands. For example, the owner's newer build may
// write a field or a type of event that the consumer does not know. The consumer applies the part
// that it understands, and the row moves to the event's version. So no later gap shows that the
// rest is missing. Therefore the row is marked incomplete, and a build that understands more takes
// the owner's state. A row from before the service kept a Completeness has the zero one, and counts as
// complete.
//
// A revision is a number that is higher for a build that understands more: see
// projection.Revision.
type Completeness struct {
	// Revision is the revision of the build that wrote the state.
	Revision int64
	// Incomplete says that the row lacks a part of the owner's state.
	Incomplete bool
}

// After returns the completeness of a row after change. c is the row's completeness before change.
//
// A change that carries the whole state makes the row complete, with two exceptions: the change is
// partial, or a build of a higher revision wrote the row. Such a build may have written columns
// that this build does not know and cannot clear.
//
// An Updated changes a part of the row and keeps the rest. So an incomplete row stays incomplete,
// and gets the lower of the two revisions. A complete row stays complete and gets the higher
// revision, unless the change is partial. A partial change makes the row incomplete.
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

// improvedBy reports whether a build of the given revision can add something to a row with the
// completeness c. The missing part is in the owner's state, which may have the same version as the
// row.
func (c Completeness) improvedBy(revision int64) bool { return c.Incomplete && c.Revision < revision }
