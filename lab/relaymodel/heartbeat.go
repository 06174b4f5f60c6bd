package relaymodel

import "slices"

// heartbeat is a statement of heartbeat.sql, from the sending to the answer.
type heartbeat struct {
	phase phase
	// ends is true if the relay deregisters.
	ends bool
	// low is the relay's low when it sent the heartbeat.
	low snapshot
	// met is the life of the server that the relay had met when it sent the heartbeat.
	met uint8
	// written, inherited and seen are Low, Inherited and Seen of the answer (queue.HeartbeatResult).
	written, inherited, seen snapshot
	// alive, gone and server are Alive, Gone and Server of the answer (queue.HeartbeatResult).
	alive, gone, server uint8
}

// sendHeartbeat models the first half of Relay.writeHeartbeat. If ends is true, the relay deregisters.
func (s *state) sendHeartbeat(id int, ends bool) {
	r := &s.relays[id]
	r.heartbeat = heartbeat{phase: sent, ends: ends, low: s.low(id), met: r.server}
}

// executeHeartbeat models heartbeat.sql: it takes over the rows of dead relays, and writes the relay's
// row.
func (s *state) executeHeartbeat(id int) {
	h := &s.relays[id].heartbeat
	own := s.db.relays[id]
	h.phase, h.seen, h.server = executed, s.db.sees(), s.server
	h.inherited = s.inherit(id, h)
	switch {
	case h.low == none:
		h.written = earliest(h.inherited, h.seen)
	case !h.isForeign(h.low) && h.met == h.server:
		h.written = earliest(h.inherited, h.low)
	case h.inherited != none:
		h.written = h.inherited
	default:
		h.written = h.seen
	}
	seen := lately
	if h.ends || own.exists && own.seen == never {
		seen = never
	}
	s.db.relays[id] = relayRow{exists: true, low: h.written, seen: seen, unanswered: true}
}

// inherit models "inherited_low" of heartbeat.sql: it returns a low of the events that the relay has to
// look for in place of other relays, or in place of itself in a former life of the server.
func (s *state) inherit(id int, h *heartbeat) snapshot {
	own := s.db.relays[id]
	inherited, alone := s.takeOver(id, h, !own.exists || h.met != 0 && h.met != h.server)
	if own.exists && (h.met != h.server || own.unanswered) {
		inherited = append(inherited, own.low)
	}
	if !own.exists && alone || slices.ContainsFunc(inherited, h.isForeign) {
		return beginning
	}
	return earliest(inherited...)
}

// takeOver deletes the rows of dead relays, and returns the lows of these rows. If all is true, it
// returns the lows of all other relays. alone is true if there is no other row.
func (s *state) takeOver(id int, h *heartbeat, all bool) (lows []snapshot, alone bool) {
	lows, alone = make([]snapshot, 0, mostRelays), true
	for other := range s.db.relays {
		w := &s.db.relays[other]
		if other == id || !w.exists {
			continue
		}
		alone = false
		if all || w.seen != lately {
			lows = append(lows, w.low)
		}
		if w.seen == lately {
			h.alive |= 1 << other
		} else {
			if w.seen == never || s.in.noSessions && !h.ends {
				h.gone |= 1 << other
			}
			*w = relayRow{}
		}
	}
	return lows, alone
}

// isForeign reports whether low comes from another cluster: its transactions are in the future here.
func (h *heartbeat) isForeign(low snapshot) bool { return low.next > h.seen.next }

// answerHeartbeat models the second half of Relay.writeHeartbeat, and followUps.heartbeatWritten: the
// relay gets the answer to a heartbeat.
func (s *state) answerHeartbeat(id int) {
	r := &s.relays[id]
	h := r.heartbeat
	r.heartbeat = heartbeat{}
	s.db.relays[id].unanswered = false
	if h.ends {
		s.end(id)
		return
	}
	restart := h.low == none || h.server != r.server
	r.alive, r.gone = h.alive, (r.gone|h.gone)&^h.alive
	from := h.inherited
	if s.in.without.inherited && earliest(h.written, h.low) != h.low {
		from = h.written
	} else if s.in.without.inherited {
		from = none
	}
	if restart && r.seen != none && !s.in.without.returnedLeases {
		r.unknownLeases = true
	}
	if restart {
		from = h.written
		r.meet(&h)
	}
	r.addScan(from)
}

// meet models followUps.meet: the relay has met a server in a new life, and its lists begin again.
func (r *relay) meet(h *heartbeat) {
	r.server, r.floor, r.seen = h.server, h.written, h.seen
	r.published, r.scan = [mostEvents]snapshot{}, none
	if r.taken != none {
		r.taken = h.written
	}
	r.tenant.restart(h.written)
	r.topic.low, r.topic.skipped = none, false
}

// end ends the process of a relay. Its handovers are gone, and no relay settles its batches.
func (s *state) end(id int) {
	s.relays[id] = relay{state: gone}
	for t := range s.in.events {
		if s.in.home[t] == id {
			s.events[t].closeHandover()
		}
	}
}

// loseHeartbeat ends a heartbeat that has failed. A relay that deregisters ends all the same.
func (s *state) loseHeartbeat(id int) {
	if s.relays[id].heartbeat.ends {
		s.end(id)
	}
	s.relays[id].heartbeat = heartbeat{}
}
