package relaymodel

// removal is the open transaction of a second Backlog.Skip (package backlog). The first one has put a marker in
// the place of an event. The broker has refused the marker, too, and the second one removes it.
type removal struct {
	open   bool
	event  uint8
	behind uint8    // the next pending event behind the removed one, counted from 1, or 0
	low    snapshot // the transaction's snapshot, which the removal leaves in outbox_relays
}

// stepsOfOperator has the steps of Backlog.RetryOne and Backlog.Skip (package backlog) for event t. An
// operator of the model can remove an event that was not skipped before.
func stepsOfOperator(s *state, to taker, t int) {
	named := func(text string) step { return step{text: text, event: t} }
	switch w := s.db.rows[t]; {
	case s.removal.open && int(s.removal.event) == t:
		to(true, named("the operator removes event {e}"), func(n *state) { n.remove() })
	case !w.pending() || !w.parked || has(s.locked, t) || s.left.actions == 0 || s.removal.open:
	default:
		to(false, named("an operator retries event {e}"), func(n *state) { n.free(t) })
		if s.maySkip(t) {
			to(false, named("an operator skips event {e}"), func(n *state) { n.free(t); n.db.rows[t].marker = true })
			to(false, named("an operator begins to remove event {e}"), func(n *state) {
				n.left.actions--
				behind := n.in.nextPending(&n.db.rows, t, n.db.rows[t].version) + 1
				n.removal = removal{open: true, event: uint8(t), behind: uint8(behind), low: n.db.sees()}
			})
		}
	}
}

// free models the function free of package backlog, for one event: a relay may publish the parked event
// again. A refusal that is not settled yet may count after that.
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

// maySkip reports whether no publish of event t can arrive any more. A publish starts only while a lease
// lasts, and Backlog.Skip waits for publishWindow, which is longer than a lease and a publish.
// publishWindow is longer than a claim, too.
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

// remove models the commit of a removal: see the function remove of package backlog.
func (s *state) remove() {
	r := &s.removal
	w := &s.db.rows[r.event]
	*w = row{state: deleted, version: w.version, xact: w.xact}
	s.events[r.event].removed = true
	if r.behind != 0 {
		s.db.rows[r.behind-1].retry = true
	}
	if !s.in.without.removalLow {
		s.db.relays[mostRelays] = relayRow{exists: true, low: r.low, seen: never}
	}
	*r = removal{}
}

// next returns the event of t's aggregate with the next version in the table, published or not, or -1.
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
