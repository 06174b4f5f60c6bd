package relaymodel

import "slices"

// stepsOfEnd models the end of Relay.Run. The relay is told to end. Its claims end at any time, the last claims
// of new events included. Then it hands open handovers back, settles the results, and deregisters.
func stepsOfEnd(s *state, to taker, id int) {
	r := &s.relays[id]
	if r.state == running && r.heartbeat.phase == idle && id < s.in.relays {
		s.fault(s.in.kinds.ends, to, of(id, "relay {r} is told to end"), func(n *state) { n.relays[id].state = ending })
	}
	if r.state != ending || r.claims() {
		return
	}
	if !r.closed {
		to(true, of(id, "relay {r} ends its handovers"), func(n *state) {
			for t := range n.in.events {
				if n.in.home[t] == id {
					n.handBack(t)
				}
			}
			n.relays[id].closed = true
		})
		return
	}
	for t := range s.in.events {
		if r.batches[t].exists {
			return
		}
	}
	to(true, of(id, "relay {r} deregisters"), func(n *state) {
		n.sendHeartbeat(id, true)
		n.executeHeartbeat(id)
		n.answerHeartbeat(id)
	})
}

// stepsOfProcess has the start of a relay's process, the steps of a living process in living, and those
// of an ended process in dead.
func stepsOfProcess(s *state, to taker, id int) {
	starts := func(n *state) { n.relays[id].state = running }
	switch r := &s.relays[id]; {
	case r.state == notStarted && id < s.in.relays:
		to(false, of(id, "relay {r} starts"), starts)
	case r.state == notStarted && id == s.in.relays && s.noneRuns():
		to(true, of(id, "relay {r} starts"), starts)
	case r.state == gone:
		s.dead(to, id)
	case r.runs():
		s.living(to, id)
	}
}

func (s *state) dead(to taker, id int) {
	r, w := &s.relays[id], &s.db.relays[id]
	if r.claims() || r.heartbeat.phase != idle || r.settlement.phase != idle {
		to(true, of(id, "the statements of relay {r} are executed late"), func(n *state) { n.executeLate(id) })
		to(false, of(id, "the statements of relay {r} end unexecuted"), func(n *state) { n.relays[id] = relay{state: gone} })
	}
	waits := r.claims() || r.heartbeat.phase != idle || r.settlement.phase != idle && !s.in.without.settleLimit
	if !waits && w.exists && w.seen == lately {
		to(true, of(id, "relay {r} counts as dead"), func(n *state) { n.db.relays[id].seen = longAgo })
	}
}

// living has the faults of a running process. It also has the step in which unknownLeases ends. That
// step comes after the end of the unknown leases, and of all statements that were sent before.
func (s *state) living(to taker, id int) {
	r := &s.relays[id]
	if s.left.kills > 0 && id < s.in.relays {
		to(false, of(id, "the process of relay {r} is killed"), func(n *state) { n.left.kills--; n.kill(id) })
	}
	if w := s.db.relays[id]; s.left.stalls > 0 && w.exists && w.seen == lately {
		to(false, of(id, "relay {r} counts as dead, as it stands still"),
			func(n *state) { n.left.stalls--; n.db.relays[id].seen = longAgo })
	}
	waits := r.claims() || r.settlement.phase != idle
	if r.unknownLeases && !waits && !s.hasUnknownLease(id) {
		to(true, of(id, "relay {r} knows its leases again"), func(n *state) { n.relays[id].unknownLeases = false })
	}
}

// hasUnknownLease reports whether relay id has a valid lease of which it does not know: a lease of an
// event that is neither in flight nor in an open handover.
func (s *state) hasUnknownLease(id int) bool {
	for t := range s.in.events {
		known := s.relays[id].batches[t].exists || s.in.home[t] == id && s.events[t].handover
		if w := s.db.rows[t]; w.leased() && int(w.token) == id+1 && !known {
			return true
		}
	}
	return false
}

func (s *state) noneRuns() bool {
	return !slices.ContainsFunc(s.relays[:s.in.relays], func(r relay) bool { return r.runs() })
}
