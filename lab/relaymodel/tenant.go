package relaymodel

// tenant models a heldTenant. All events of a scope are of one tenant. A relay that holds the tenant claims the
// events in turns.
type tenant struct {
	held bool
	// low is heldTenant.low, a low of the events that claims have skipped since the tenant's scan began.
	low snapshot
	// scanning is heldTenant.scanning, a low of the events that the tenant's running scan reads.
	scanning snapshot
	// left is heldTenant.leftLow, a low of the events that a turn could not claim.
	left snapshot
	// skippedLow is heldTenant.skippedLow, a low of the events that scans for all tenants have skipped.
	skippedLow snapshot
	// seen is heldTenant.seen, the latest snapshot of the turns.
	seen snapshot
	// skipped models heldTenant.skipped: it is the set of the transactions with events that scans for all tenants
	// have skipped.
	skipped uint8
	// unread models heldTenant.parts: it is the set of the transactions that the tenant's running scan has to
	// read. Bit 0 is set if there are none.
	unread uint8
	// life is the life of the server in which the tenant's running scan began.
	life uint8
	// published models heldTenant.published: it has, by event, the lows of the tenant's published versions.
	published [mostEvents]snapshot
	// taken is versions.takenLow of heldTenant.published, while a turn is on its way.
	taken snapshot
}

// lowOfTenant models heldTenant.lowest: a low of the held tenant's unfinished events, except those in
// flight.
func (s *state) lowOfTenant(r *relay) snapshot {
	h := &r.tenant
	if s.in.without.tenantLow {
		return none
	}
	return earliest(s.lowOfScans(r), h.taken, earliest(h.published[:]...))
}

// lowOfScans models heldTenant.lowOfScans: a low of the events for which the tenant's scans look.
func (s *state) lowOfScans(r *relay) snapshot {
	h := &r.tenant
	return earliest(h.low, s.covering(r, h.scanning, h.life), h.left, h.skippedLow)
}

// hold models followUps.hold: the tenant waits for turns from now on.
func (r *relay) hold() {
	r.tenant = tenant{held: true, published: r.published}
	r.published = [mostEvents]snapshot{}
}

// release models followUps.release: the relay claims the tenant's events without turns again.
func (s *state) release(r *relay) {
	if low := s.lowOfScans(r); low != none {
		r.addScan(low)
	}
	for t, low := range r.tenant.published {
		r.published[t] = earliest(r.published[t], low)
	}
	r.tenant = tenant{}
}

// restart models heldTenant.restart: the relay has met a server in a new life, and scans from floor.
func (h *tenant) restart(floor snapshot) {
	h.low, h.left, h.skipped, h.skippedLow, h.seen = none, none, 0, none, none
	h.published = [mostEvents]snapshot{}
	if h.taken != none {
		h.taken = floor
	}
}

// noteSkipped models followUps.noteSkippedTenants: a claim of new events has skipped events of the
// tenant. from is a low of these events.
func (s *state) noteSkipped(r *relay, from snapshot) {
	switch h := &r.tenant; {
	case s.in.without.skippedTenants:
	case h.held:
		h.low = earliest(h.low, from)
	default:
		r.addScan(from)
	}
}

// noteSkippedPart models followUps.noteSkippedPart: the page c of a scan has skipped events of the
// tenant.
func (s *state) noteSkippedPart(r *relay, c *claim) {
	from := s.covering(r, r.scanning, r.scanLife)
	switch {
	case s.in.without.skippedParts:
		return
	case !r.tenant.held:
		r.addScan(from)
		return
	}
	part := uint8(1) << c.part
	if c.part == 0 { // queue.Cursor.Through
		part = snapshot{next: c.since.next}.until(c.seen)
	}
	r.tenant.skipped |= part
	r.tenant.skippedLow = earliest(r.tenant.skippedLow, from)
}

// beginTenantScan models heldTenant.begin. due is true if the scan for the events that turns have left
// is due.
func (r *relay) beginTenantScan(due bool, without protocolParts) {
	h, from := &r.tenant, r.tenant.low
	if due {
		from, h.left = earliest(from, h.left), none
	}
	h.scanning, h.life, h.unread = earliest(from, h.skippedLow), r.server, h.skipped
	if from != none && without.seenInTurns {
		h.unread |= from.until(r.seen)
	} else if from != none {
		h.unread |= from.until(latest(r.seen, h.seen))
	}
	if h.unread == 0 {
		h.unread = 1
	}
	h.low, h.skipped, h.skippedLow = none, 0, none
}

// sendTurn models the first half of Relay.takeTurn: the relay sends the claim of a turn.
func (s *state) sendTurn(id int, kind claimKind) {
	r := &s.relays[id]
	h := &r.tenant
	r.turn = claim{phase: sent, kind: kind, alive: r.alive, gone: r.gone, met: r.server, begun: r.server, unknownLeases: r.unknownLeases}
	r.turn.paused = r.topic.known
	if kind == turnBehind {
		r.turn.after, h.taken = h.published, earliest(h.published[:]...)
		h.published = [mostEvents]snapshot{}
		return
	}
	r.turn.since, r.turn.begun = h.scanning, h.life
	for !has(h.unread, int(r.turn.part)) {
		r.turn.part++
	}
}

// answerTurn models the second halves of Relay.claimBehind and Relay.claimHeldPage: the relay gets the
// answer to the claim of a turn.
func (s *state) answerTurn(id int) {
	r := &s.relays[id]
	h := &r.tenant
	if r.turn.isRefused(s.in.without) {
		r.giveBackTurn()
		return
	}
	c := r.turn
	r.turn = claim{}
	s.dispatch(id, &c)
	bound := earliest(c.since, earliest(c.after[:]...))
	if r.hasLeft(&c, s.in.without) && !s.in.without.leftByTurns { // followUps.left
		h.seen, h.left = latest(h.seen, c.seen), earliest(h.left, s.covering(r, bound, c.begun))
	}
	if c.paused {
		s.noteSkippedTypes(r, s.covering(r, bound, c.begun))
	}
	if c.kind == turnBehind && c.paused { // followUps.turnFollowed
		h.low = earliest(h.low, s.covering(r, bound, c.begun))
	}
	if c.kind == turnBehind {
		h.seen, h.taken = latest(h.seen, c.seen), none
	} else if h.unread &^= 1 << c.part; h.unread == 0 { // followUps.turnScanned
		h.scanning, h.life = none, 0
	}
}

// giveBackTurn models followUps.turnFailed: it ends a failed turn.
func (r *relay) giveBackTurn() {
	for t, low := range r.turn.after {
		if r.turn.begun == r.server {
			r.tenant.published[t] = earliest(r.tenant.published[t], low)
		}
	}
	r.turn, r.tenant.taken = claim{}, none
}

// loseTurn is like loseClaim, for the claim of a turn.
func (r *relay) loseTurn() {
	r.giveBackTurn()
	r.unknownLeases = true
}

// stepsOfTurns models turnLoop. It also has the steps in which a relay holds a tenant and releases it.
// In the code a relay holds a tenant that is busy next to other tenants, and releases it when it is
// alone.
func stepsOfTurns(s *state, to taker, id int) {
	r := &s.relays[id]
	switch h := &r.tenant; {
	case !r.runs():
	case r.turn.phase != idle:
		s.turn(to, id, r.turn.kind)
	case !r.claimable():
	case !h.held:
		if s.left.holds > 0 {
			to(false, of(id, "relay {r} holds the tenant"), func(n *state) { n.left.holds--; n.relays[id].hold() })
		}
	default:
		s.turns(to, id)
		to(false, of(id, "relay {r} releases the tenant"), func(n *state) { n.release(&n.relays[id]) })
	}
}

// turns passes the next turns of the held tenant, and the begins of the tenant's scans.
func (s *state) turns(to taker, id int) {
	h := &s.relays[id].tenant
	if earliest(h.published[:]...) != none {
		s.turn(to, id, turnBehind)
	}
	if h.unread != 0 {
		s.turn(to, id, turnPage)
		return
	}
	skipped := h.low != none || h.skipped != 0
	if skipped || h.left != none {
		to(true, of(id, "relay {r} begins a scan for the tenant"), func(n *state) { n.relays[id].beginTenantScan(true, n.in.without) })
	}
	if skipped && h.left != none {
		to(false, of(id, "relay {r} begins a scan for the tenant, without what is leased"),
			func(n *state) { n.relays[id].beginTenantScan(false, n.in.without) })
	}
}

func (s *state) turn(to taker, id int, kind claimKind) {
	name := of(id, "relay {r} takes a turn behind published events")
	if kind == turnPage {
		name = of(id, "relay {r} takes a turn with a page")
	}
	statement{name, s.in.slow[id].turns, [executed]func(*state){
		idle:   func(n *state) { n.sendTurn(id, kind) },
		sent:   func(n *state) { n.beginClaim(&n.relays[id].turn) },
		begins: func(n *state) { n.executeClaim(id, &n.relays[id].turn) },
	}, func(n *state) { n.answerTurn(id) }, func(n *state) { n.relays[id].loseTurn() }}.pass(s, to, s.relays[id].turn.phase)
}
