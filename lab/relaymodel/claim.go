package relaymodel

// phase is how far a statement has come. A statement takes its snapshot when the server begins to execute it, and sees
// later changes of a row only when it locks the row.
type phase uint8

const (
	idle phase = iota
	sent
	begins
	executed
)

// claim is a statement of claim.sql, from the sending to the answer.
type claim struct {
	phase phase
	kind  claimKind
	// since is a low of the events for which the claim looks: the last claim's snapshot, or the low of a scan.
	since snapshot
	// after has, by event, the lows of the published versions behind which the claim looks.
	after [mostEvents]snapshot
	// part is the page that a scan or a turn reads. It has the rows of the transaction part. Page 0 of a scan has
	// the rows of all transactions that had not begun in since, and page 0 of a turn has no rows.
	part uint8
	// alive are the other living relays. The claim leaves their leases to them.
	alive uint8
	// met is the life of the server in which the relay sent the claim.
	met uint8
	// begun is the life of the server in which since and after were taken.
	begun uint8
	// unknownLeases is the relay's unknownLeases when it sent the claim.
	unknownLeases bool
	// gone are the relays whose processes have ended. Their leases count as none.
	gone uint8
	// held is true if the claim skips the events of the held tenant, except those behind published versions.
	held bool
	// paused is true if the claim skips all events, because their topic is paused.
	paused bool
	// withoutRetries is queue.Claim.SkipRetries: a page of a scan leaves out retries.
	withoutRetries bool
	// rows are the rows of the events in the statement's snapshot.
	rows [mostEvents]row
	// seen is the statement's snapshot.
	seen snapshot
	// server is the life of the server that executes the statement.
	server uint8
	// heads are the events that the statement has leased.
	heads uint8
	// skipped is true if the statement could not lease some event, and no living relay takes care of that event.
	skipped bool
}

type claimKind uint8

const (
	claimNew claimKind = iota
	claimPage
	claimRetries
	turnPage
	turnBehind
	probePage
	probeRetries
)

// sendClaim models the first half of Relay.claimNew: the relay sends a claim of new events.
func (s *state) sendClaim(id int) {
	r := &s.relays[id]
	r.setPausedTypes(s.in.without)
	r.claim = claim{
		phase: sent, since: r.seen, after: r.published, alive: r.alive, gone: r.gone, met: r.server, begun: r.server,
		unknownLeases: r.unknownLeases, held: r.tenant.held, paused: r.topic.known,
	}
	r.taken = earliest(r.published[:]...)
	if !s.in.without.claimLow {
		r.taken = earliest(r.taken, r.seen)
	}
	r.published = [mostEvents]snapshot{}
}

// sendPage models the first half of Relay.scan: the relay sends the claim of a scan's next page, or of
// retries.
func (s *state) sendPage(id int, kind claimKind) {
	r := &s.relays[id]
	r.page = claim{phase: sent, kind: kind, alive: r.alive, gone: r.gone, met: r.server, begun: r.server, unknownLeases: r.unknownLeases}
	r.page.paused = r.topic.known
	if kind == claimPage {
		r.page.held = r.tenant.held
		r.page.since, r.page.begun = r.scanning, r.scanLife
		for !has(r.unread, int(r.page.part)) {
			r.page.part++
		}
	}
}

// beginScan models followUps.beginScan, and queue.TxSnapshot.Since, which returns the pages of the scan.
func (r *relay) beginScan() {
	r.scanning, r.scan, r.scanLife = r.scan, none, r.server
	r.unread = r.scanning.open | 1
}

func (s *state) beginClaim(c *claim) {
	c.phase, c.rows, c.seen, c.server = begins, s.db.rows, s.db.sees(), s.server
}

// finds reports whether the statement's first query reads the row of event t. The first queries are in
// "claim new events", "claim a page" and "claim retries" of claim.sql.
func (c *claim) finds(t int) bool {
	w := c.rows[t]
	switch {
	case !w.pending():
		return false
	case c.kind == claimRetries || c.kind == probeRetries:
		return w.retry && !w.leasedBut(c.gone)
	case c.held || c.kind == turnBehind:
		return false
	case c.kind == claimNew:
		return !c.since.saw(w.xact) && w.xact < c.seen.next
	default:
		return c.isOnPage(w)
	}
}

// isOnPage models the query "page" of "claim a page" in claim.sql: it reports whether the page has the
// pending row w.
func (c *claim) isOnPage(w row) bool {
	switch {
	case w.parked || w.retry && c.withoutRetries:
		return false
	case c.kind == turnPage || c.part != 0:
		return w.xact == c.part
	default:
		return w.xact >= c.since.next
	}
}

// candidates models "candidates" of claim.sql: the oldest row of each aggregate among the rows that the
// statement finds. A claim of new events also finds the next pending event behind each published version
// in after.
func (c *claim) candidates(in *scope) (set uint8) {
	found := uint8(0)
	for t := range in.events {
		if c.finds(t) {
			found |= 1 << t
		}
		if c.after[t] != none && c.rows[t].state >= committed {
			if next := in.nextPending(&c.rows, t, c.rows[t].version); next >= 0 {
				found |= 1 << next
			}
		}
	}
	for t := range in.events {
		oldest := has(found, t)
		for u := range in.events {
			if has(found, u) && in.sameAggregate(t, u) && c.rows[u].version < c.rows[t].version {
				oldest = false
			}
		}
		if oldest {
			set |= 1 << t
		}
	}
	return set
}

// known are the relays that take care of their own leases, for a claim of relay id.
func (c *claim) known(id int) uint8 {
	if c.unknownLeases {
		return c.alive
	}
	return c.alive | 1<<id
}

// executeClaim models "claim candidates" of claim.sql: it leases the candidates that are heads and free.
func (s *state) executeClaim(id int, c *claim) {
	known := c.known(id)
	if c.phase = executed; c.isRefused(s.in.without) {
		return
	}
	candidates := c.candidates(s.in)
	for t := range s.in.events {
		switch w := c.rows[t]; {
		case !has(candidates, t) || c.paused || !s.isHead(c, t):
		case !w.leasedBut(c.gone) && s.isFree(c, t):
			s.lease(id, c, t)
		default:
			c.skipped = c.skipped || s.passes(known, w, t)
		}
	}
}

// passes models "passed" of claim.sql, for an event that the claim has to skip: it reports whether no
// relay in known takes care of the event. w is the event's row in the claim's snapshot.
func (s *state) passes(known uint8, w row, t int) bool {
	if w.leased() {
		return !has(known, int(w.token)-1)
	}
	return !has(s.locked, t) || !s.in.without.lockedRows
}

// isHead models "is head" of claim.sql: it reports whether event t is the head of its aggregate in the
// claim's snapshot.
func (s *state) isHead(c *claim, t int) bool {
	return (!c.rows[t].parked || s.in.without.parked) && (s.in.follows(&c.rows, t) || s.in.without.heads)
}

// isFree reports whether the claim can lock the row of event t, and whether the row as it is now may be
// leased.
func (s *state) isFree(c *claim, t int) bool {
	w := s.db.rows[t]
	return !has(s.locked, t) && w.pending() && (!w.parked || s.in.without.parked) && !w.leasedBut(c.gone)
}

// lease leases event t.
func (s *state) lease(id int, c *claim, t int) {
	w := &s.db.rows[t]
	c.heads |= 1 << t
	w.token, w.fresh = uint8(id)+1, true
	if s.blocked(t) {
		s.broken = "an event is claimed that waits for an operator"
	}
}

// isRefused reports whether the claim fails with queue.ErrAnotherServer: the server is in another life
// than the one in which the relay sent the claim.
func (c *claim) isRefused(without protocolParts) bool { return c.server != c.met && !without.refusals }

// answerClaim models the second half of Relay.claimNew: the relay gets the answer to a claim of new
// events.
func (s *state) answerClaim(id int) {
	r := &s.relays[id]
	if r.claim.isRefused(s.in.without) {
		r.giveBackClaim()
		return
	}
	c := r.claim
	r.claim = claim{}
	s.dispatch(id, &c)
	r.taken = none
	from := s.covering(r, earliest(earliest(c.after[:]...), c.since), c.begun)
	if r.hasLeft(&c, s.in.without) {
		r.addScan(from)
	}
	if c.held {
		s.noteSkipped(r, s.covering(r, c.since, c.begun))
	}
	if c.paused {
		s.noteSkippedTypes(r, from)
	}
	if c.begun == r.server || s.in.without.metServer {
		r.seen = c.seen
	} else {
		r.addScan(from)
	}
}

// hasLeft models followUps.hasLeft: it reports whether the claim may have left events of which no living
// relay takes care.
func (r *relay) hasLeft(c *claim, without protocolParts) bool {
	return c.skipped || c.alive&^r.alive != 0 && !without.endedRelays
}

// answerPage models the second half of Relay.scan: the relay gets the answer to the claim of a page or
// of retries.
func (s *state) answerPage(id int) {
	r := &s.relays[id]
	if r.page.isRefused(s.in.without) {
		r.page = claim{}
		return
	}
	c := r.page
	r.page = claim{}
	s.dispatch(id, &c)
	if c.kind == claimRetries {
		return
	}
	if c.held {
		s.noteSkippedPart(r, &c)
	}
	if c.paused {
		s.noteSkippedTypes(r, s.covering(r, r.scanning, r.scanLife))
	}
	if r.hasLeft(&c, s.in.without) {
		r.addScan(s.covering(r, r.scanning, r.scanLife))
	}
	if r.unread &^= 1 << c.part; r.unread == 0 {
		r.scanning, r.scanLife = none, 0
	}
}

// giveBackClaim models followUps.giveBack: it ends a failed claim of new events.
func (r *relay) giveBackClaim() {
	for t, low := range r.claim.after {
		if r.claim.begun == r.server {
			r.published[t] = earliest(r.published[t], low)
		}
	}
	r.claim, r.taken = claim{}, none
}

// loseClaim models Relay.claimLost: a claim of new events gets no answer, so the relay may have leases
// that it does not know of. A refused claim has written no lease, so answerClaim only gives it back.
func (r *relay) loseClaim() {
	r.giveBackClaim()
	r.unknownLeases = true
}

// losePage is like loseClaim, for a claim of a page or of retries.
func (r *relay) losePage() { r.page, r.unknownLeases = claim{}, true }

// dispatch models Relay.dispatch and inFlight.add: the claimed batches are in flight now.
func (s *state) dispatch(id int, c *claim) {
	for t := range s.in.events {
		b := &s.relays[id].batches[t]
		switch {
		case !has(c.heads, t):
		case b.exists:
			b.again, b.valid = true, b.valid || s.in.without.lapsed
		default:
			*b = s.leased(c, t)
		}
	}
}

// leased returns the batch of a claim that has leased event t as the head.
func (s *state) leased(c *claim, t int) batch {
	b := batch{exists: true, low: c.since, lowBehind: c.seen, life: c.begun, valid: true, retry: c.rows[t].retry}
	for u := range s.in.events {
		w := c.rows[u]
		if s.in.sameAggregate(t, u) && w.pending() && w.version >= c.rows[t].version {
			b.add(u, w)
		}
		if s.in.sameAggregate(t, u) {
			b.low = earliest(b.low, c.after[u])
		}
	}
	if c.kind == probePage || c.kind == probeRetries { // a probe is one event
		b.events, b.markers, b.lowBehind = 1<<t, b.markers&(1<<t), b.low
	}
	if b.retry {
		b.low, b.lowBehind = c.seen, c.seen
	}
	return b
}

// add adds event t to the batch. w is the row of the event in the claim's snapshot.
func (b *batch) add(t int, w row) {
	b.events |= 1 << t
	b.tried[t] = w.attempts
	if w.marker {
		b.markers |= 1 << t
	}
}
