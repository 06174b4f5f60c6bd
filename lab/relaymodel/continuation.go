package relaymodel

import "hash/maphash"

// mostRounds is far above the number of rounds that a continuation needs.
const mostRounds = 50

// continues checks that a fair continuation of s publishes all events. In it no fault happens, no
// transaction begins, and each process takes a step in each round. The search checks one continuation of
// every state that any order of steps leads to. So one continuation is enough for each state.
func (f *search) continues(s *state) rule {
	n := &f.goesOn
	*n = *s
	var passed []uint64
	for range mostRounds {
		key := maphash.Comparable(f.seed, *n)
		if _, good := f.good[key]; good || n.done() {
			for _, k := range append(passed, key) {
				f.good[k] = struct{}{}
			}
			return ""
		}
		passed = append(passed, key)
		n.round(nil)
		if n.broken != "" {
			return "in a fair continuation " + n.broken
		}
	}
	return "an event is never published, or a batch stays in flight,"
}

// round takes one round of a fair continuation: the first fair steps of each process. It passes the
// names of the steps to taken, which may be nil.
func (s *state) round(taken func(step)) {
	s.processes(func(p process, of int) {
		for range p.atOnce {
			var first func(*state)
			p.steps(s, func(fair bool, named step, do func(*state)) {
				if !fair || first != nil {
					return
				}
				if first = do; taken != nil {
					taken(named)
				}
			}, of)
			if first == nil {
				return
			}
			first(s)
		}
	})
}

// done reports whether a continuation has reached its end: all committed events are published, parked or
// behind a parked event, and no batch is in flight.
func (s *state) done() bool {
	for t := range s.in.events {
		if s.db.rows[t].state == open || s.db.rows[t].pending() && !s.blocked(t) {
			return false
		}
	}
	for id := range s.relays {
		for t := range s.in.events {
			if s.relays[id].batches[t].exists {
				return false
			}
		}
	}
	return true
}
