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

// claim is a statement of claim.sql on its way.
type claim struct {
	phase phase
	kind  claimKind
	// since is the snapshot of the last claim, or that of the scan. after has the lows of published versions that the claim
	// has taken. part is the page.
	since snapshot
	after [mostEvents]snapshot
	part  uint8
	// alive are the relays whose leases the claim leaves alone: the other living ones. unknownLeases is that of the relay when
	// the claim was sent. met is the life of the server in which it was sent, and begun that of which since and after are.
	alive, met, begun uint8
	unknownLeases     bool
	// gone are the relays whose leases count as none.
	gone uint8
	// held says that the claim skips the events of the tenant, which are found behind published versions only.
	// paused says that it skips all events, because their topic is paused.
	held, paused bool
	// withoutRetries is SkipRetries.
	withoutRetries bool
	// rows and seen are what the statement sees, and server is the server that executes it.
	rows   [mostEvents]row
	seen   snapshot
	server uint8
	// heads are the events that it has leased, and skipped says that it had to leave one.
	heads   uint8
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

// sendClaim is the first half of Relay.claimNew.
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

// sendPage is the first half of Relay.scan, for a page of a scan or for retries.
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

// beginScan is followUps.beginScan and TxSnapshot.Since.
func (r *relay) beginScan() {
	r.scanning, r.scan, r.scanLife = r.scan, none, r.server
	r.unread = r.scanning.open | 1
}

func (s *state) beginClaim(c *claim) {
	c.phase, c.rows, c.seen, c.server = begins, s.db.rows, s.db.sees(), s.server
}

// finds reports whether the statement reads the row of event t: "claim new events", "claim a page" or "claim retries".
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

// isOnPage is "page" in "claim a page".
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

// candidates is "candidates": the oldest row of each aggregate among the rows that the statement finds. For new events they
// include the next events behind the published ones.
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

// known are the relays whose leases the claim leaves alone.
func (c *claim) known(id int) uint8 {
	if c.unknownLeases {
		return c.alive
	}
	return c.alive | 1<<id
}

// executeClaim is "claim candidates".
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

// passes is "passed", for an event that the claim has to skip.
func (s *state) passes(known uint8, w row, t int) bool {
	if w.leased() {
		return !has(known, int(w.token)-1)
	}
	return !has(s.locked, t) || !s.in.without.lockedRows
}

// isHead is "is head".
func (s *state) isHead(c *claim, t int) bool {
	return (!c.rows[t].parked || s.in.without.parked) && (s.in.follows(&c.rows, t) || s.in.without.heads)
}

// isFree reports whether the row of event t can be locked, and may be leased as it is now.
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

// isRefused reports whether the server is not the one that the relay had met when it sent the claim: queue.ErrAnotherServer.
func (c *claim) isRefused(without parts) bool { return c.server != c.met && !without.refusals }

// answerClaim is the second half of Relay.claimNew.
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

// hasLeft is followUps.hasLeft.
func (r *relay) hasLeft(c *claim, without parts) bool {
	return c.skipped || c.alive&^r.alive != 0 && !without.endedRelays
}

// answerPage is the second half of Relay.scan.
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

// giveBackClaim ends a claim of new events that has failed: see followUps.giveBack.
func (r *relay) giveBackClaim() {
	for t, low := range r.claim.after {
		if r.claim.begun == r.server {
			r.published[t] = earliest(r.published[t], low)
		}
	}
	r.claim, r.taken = claim{}, none
}

// loseClaim is what becomes of the relay when a claim of new events has no answer: see Relay.claimLost. A refused claim has
// written no lease.
func (r *relay) loseClaim() {
	r.giveBackClaim()
	r.unknownLeases = true
}

// losePage is loseClaim for a page.
func (r *relay) losePage() { r.page, r.unknownLeases = claim{}, true }

// dispatch is Relay.dispatch and inFlight.add.
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

// leased is the batch of a claim whose head is event t.
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

// add adds the event t, which the claim has seen as w.
func (b *batch) add(t int, w row) {
	b.events |= 1 << t
	b.tried[t] = w.attempts
	if w.marker {
		b.markers |= 1 << t
	}
}
