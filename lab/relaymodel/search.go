package relaymodel

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// rule is a rule that a history has broken, in plain words. It is empty if the history has broken none.
type rule string

// search is a breadth-first search of the states of a scope. It keeps only the hashes of the states that
// it has met. If two states have the same hash, it overlooks one of them. With five million states the
// chance of that is below one in a million. The next run has another seed, and would overlook another
// state.
type search struct {
	seed maphash.Seed
	met  map[uint64]struct{}
	// from has, by number of a state, the number of the state before it.
	from []int32
	// by has, by number of a state, the step that led to it.
	by []step
	// good has the hashes of states from which a fair continuation publishes all events.
	good               map[uint64]struct{}
	depth, transitions int
	// exhausted is true if the search has met all states of the scope.
	exhausted bool
	// broken is the first broken rule.
	broken rule
	// brokenAt is the number of the state that breaks the rule.
	brokenAt int32
	// brokenState is the state that breaks the rule.
	brokenState *state
	// goesOn is the present state of the continuation that is being checked.
	goesOn state
}

type node struct {
	state  state
	number int32
}

// level has the states of one depth, in pieces. One slice of all states would grow by copying millions
// of states again and again. A piece becomes garbage as soon as the search has taken the steps of its
// states.
type level [][]node

const pieceLength = 1024

func (l *level) add(n node) {
	if len(*l) == 0 || len((*l)[len(*l)-1]) == pieceLength {
		*l = append(*l, make([]node, 0, pieceLength))
	}
	last := &(*l)[len(*l)-1]
	*last = append(*last, n)
}

// explore searches all histories of the scope. If depth is not 0, it searches only their first depth
// steps. It stops at the first history that breaks a rule, which is one of the shortest.
func explore(c *scope, depth int) *search {
	f := &search{seed: maphash.MakeSeed(), met: map[uint64]struct{}{}, good: map[uint64]struct{}{}}
	n := &node{state: *c.initial()} // one for all steps, because each would be garbage otherwise
	var present level
	f.add(&n.state, -1, step{})
	present.add(*n)
	for len(present) > 0 && f.broken == "" && (depth == 0 || f.depth < depth) {
		var next level
		for i := range present {
			for j := range present[i] {
				at := &present[i][j]
				at.state.steps(func(_ bool, p step, do func(*state)) {
					n.state = at.state
					do(&n.state)
					f.transitions++
					if f.broken == "" && f.add(&n.state, at.number, p) {
						n.number = int32(len(f.from) - 1)
						next.add(*n)
					}
				})
			}
			present[i] = nil
		}
		present = next
		f.depth++
	}
	f.exhausted = len(present) == 0
	return f
}

// add adds and checks a state, unless the search has met it. from is the number of the state before it,
// and by is the step between them.
func (f *search) add(s *state, from int32, by step) (isNew bool) {
	key := maphash.Comparable(f.seed, *s)
	if _, met := f.met[key]; met {
		return false
	}
	f.met[key] = struct{}{}
	f.from, f.by = append(f.from, from), append(f.by, by)
	f.broken = s.broken
	if f.broken == "" && !s.lowsHold() {
		f.broken = "no relay's low in the table is from before a pending event"
	}
	if f.broken == "" {
		f.broken = f.continues(s)
	}
	if f.broken != "" {
		broken := *s
		f.brokenAt, f.brokenState = int32(len(f.from)-1), &broken
	}
	return true
}

// history describes the history that breaks a rule: its steps, one a line, the rows in the tables, and
// the steps of a fair continuation.
func (f *search) history() string {
	var steps []string
	for at := f.brokenAt; at > 0; at = f.from[at] {
		steps = append(steps, f.by[at].String())
	}
	slices.Reverse(steps)
	n := *f.brokenState
	rows := fmt.Sprintf("%+v\n  %+v", n.db.rows[:n.in.events], n.db.relays)
	var further []string
	for range shownRounds {
		n.round(func(p step) { further = append(further, p.String()) })
	}
	return fmt.Sprintf("%s after\n  %s\nwith the rows\n  %s\nIt goes on with\n  %s",
		f.broken, strings.Join(steps, "\n  "), rows, strings.Join(further, "\n  "))
}

// shownRounds is the number of rounds of a continuation that history shows.
const shownRounds = 4

// lowsHold reports whether, for each pending event, some relay's row in the table has a low that did not
// see the event. The exceptions are retries, parked events, and the events behind them. See "Where to
// look" in the doc of package queue.
func (s *state) lowsHold() bool {
	alone := true
	for _, w := range s.db.relays {
		alone = alone && !w.exists
	}
	for t := range s.in.events {
		w := s.db.rows[t]
		if alone || !w.pending() || s.behindRetry(t) {
			continue
		}
		covered := false
		for _, r := range s.db.relays {
			covered = covered || r.exists && !r.low.saw(w.xact)
		}
		if !covered {
			return false
		}
	}
	return true
}

func (s *state) behindRetry(t int) bool {
	for u := range s.in.events {
		if w := s.db.rows[u]; s.in.sameAggregate(t, u) && w.pending() && (w.retry || w.parked) && w.version <= s.db.rows[t].version {
			return true
		}
	}
	return false
}
