package relaymodel

// removal is a second Backlog.Skip on its way, which removes a marker that the broker refuses, too.
type removal struct {
	// phase is begins while the transaction is open, and executed until freeBehind.
	phase         phase
	event, behind uint8 // behind counts from 1
}

// stepsOfOperator are those of package backlog on an event: RetryOne and Skip. To remove an event, the operator need not
// skip it first.
func stepsOfOperator(s *state, to taker, t int) {
	named := func(text string) step { return step{text: text, event: t} }
	switch w := s.db.rows[t]; {
	case s.removal.phase != idle && int(s.removal.event) == t:
		s.removes(to, named)
	case !w.pending() || !w.parked || has(s.locked, t) || s.left.actions == 0 || s.removal.phase != idle:
	default:
		to(false, named("an operator retries event {e}"), func(n *state) { n.free(t) })
		if s.maySkip(t) {
			to(false, named("an operator skips event {e}"), func(n *state) { n.free(t); n.db.rows[t].marker = true })
			to(false, named("an operator begins to remove event {e}"), func(n *state) {
				n.left.actions--
				n.removal = removal{phase: begins, event: uint8(t), behind: uint8(n.in.nextPending(&n.db.rows, t, n.db.rows[t].version) + 1)}
			})
		}
	}
}

// free is Backlog.free, for one event. A refusal that is not settled yet may count after it.
func (s *state) free(t int) {
	s.left.actions--
	w := &s.db.rows[t]
	w.parked, w.retry, w.attempts = false, true, 0
	s.events[t].refusals = 0
	for id := range s.relays {
		for u := range s.in.events {
			if b := &s.relays[id].batches[u]; b.exists && b.refused && s.firstUnpublished(b) == t {
				s.events[t].refusals++
			}
		}
	}
}

// maySkip reports whether no publish of the event can arrive any more: it starts only while a lease lasts, and publishWindow
// is longer. It is longer than a claim, too.
func (s *state) maySkip(t int) bool {
	for id := range s.relays {
		r := &s.relays[id]
		for u := range s.in.events {
			if b := &r.batches[u]; b.exists && has(b.events, t) && b.valid && !b.answered {
				return false
			}
		}
		for _, c := range r.statements() {
			if c.phase >= begins && c.rows[t].waits() {
				return false
			}
		}
	}
	return true
}

// removes has the next step of a removal.
func (s *state) removes(to taker, named func(string) step) {
	if s.removal.phase == begins {
		to(true, named("the operator removes event {e}"), func(n *state) { n.remove() })
		return
	}
	to(true, named("the operator frees the event behind event {e}"), func(n *state) { n.freeBehind() })
}

// remove is the COMMIT of remove.
func (s *state) remove() {
	r := &s.removal
	w := &s.db.rows[r.event]
	*w = row{state: deleted, version: w.version, xact: w.xact}
	s.events[r.event].removed = true
	if r.behind != 0 {
		s.db.rows[r.behind-1].retry = true
	}
	r.phase, r.behind = executed, 0
}

// freeBehind is Backlog.freeBehind.
func (s *state) freeBehind() {
	t := int(s.removal.event)
	if next := s.in.next(&s.db.rows, t); next >= 0 && !s.in.without.freedBehind {
		if w := &s.db.rows[next]; w.waits() {
			w.retry = true
		}
	}
	s.removal = removal{}
}

// next is the event of t's aggregate with the next version that is in the table, or -1.
func (c *scope) next(rows *[mostEvents]row, t int) int {
	next := -1
	for u := range c.events {
		if w := rows[u]; c.sameAggregate(t, u) && w.state == committed && w.version > rows[t].version &&
			(next < 0 || w.version < rows[next].version) {
			next = u
		}
	}
	return next
}

// after is the removal after a failover to a server with the tables in d.
func (r removal) after(d *database) removal {
	if r.phase == executed && d.rows[r.event].state == deleted {
		return r
	}
	return removal{}
}

// behindRemoval reports whether event t is behind a removed one, and the operator's command is still to free it.
func (s *state) behindRemoval(t int) bool {
	r := s.removal
	return r.phase == executed && s.in.sameAggregate(t, int(r.event)) && s.db.rows[t].version > s.db.rows[r.event].version
}
