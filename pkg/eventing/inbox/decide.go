package inbox

// Kind is what a change needs of the state that it meets.
type Kind int

// The kinds of changes.
const (
	// Created carries everything, and is an aggregate's first.
	Created Kind = iota + 1
	// Updated carries the difference to its direct predecessor.
	Updated
	// Deleted leaves a tombstone, whatever was before.
	Deleted
	// Snapshot carries everything: the state of a living aggregate as its owner
	// has it. (That of a deleted one is Deleted.)
	Snapshot
	// Put carries everything too, of an aggregate that may return from its
	// deletion: as an event, or as its owner has it. It never is a gap.
	Put
)

// Position is where a read model stands with one aggregate. The zero Position is
// that of one it has never heard of.
type Position struct {
	Epoch, Version int64
	// Deleted says that there is a tombstone.
	Deleted bool
}

// state is what decide tells apart in a Position.
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

// rules has a change that is newer than what it meets: what must hold for it to
// be applied. What is absent is a gap, and only the owner can tell.
//
//	change    on nothing    on what is alive          on a tombstone
//	Created   version 1     gap                       gap
//	Updated   gap           direct successor          gap
//	Deleted   applied       applied                   applied
//	Snapshot  applied       applied                   a later epoch: a deletion
//	                                                  is final within its own
//	Put       applied       applied                   applied
var rules = map[Kind]map[state]func(p, c Position) bool{
	Created:  {nothing: isFirst},
	Updated:  {alive: succeeds},
	Deleted:  {nothing: always, alive: always, tombstone: always},
	Snapshot: {nothing: always, alive: always, tombstone: isLaterLife},
	Put:      {nothing: always, alive: always, tombstone: always},
}

func always(Position, Position) bool { return true }
func isFirst(_, c Position) bool     { return c.Version == 1 }
func succeeds(p, c Position) bool    { return c.Epoch == p.Epoch && c.Version == p.Version+1 }
func isLaterLife(p, c Position) bool { return c.Epoch > p.Epoch }
func newer(c, p Position) bool {
	return c.Epoch > p.Epoch || c.Epoch == p.Epoch && c.Version > p.Version
}
func (c Change) position() (reach Position) {
	return Position{Epoch: c.Event.Epoch, Version: c.Event.Version}
}

// Decide is the one rule by which a read model moves: what becomes of c where
// the model stands at p. Positions compare by (epoch, version). A change that is
// not newer is Stale: seen, or overtaken. One that is has its condition in
// rules, and is a Gap where that does not hold.
func Decide(p Position, c Change) Outcome {
	if !newer(c.position(), p) {
		return Stale
	}
	if holds := rules[c.Kind][p.state()]; holds != nil && holds(p, c.position()) {
		return Applied
	}
	return Gap
}
