package relaymodel

// kill ends a process without notice. A claim, settlement or heartbeat that it has sent may still be executed, and so may
// a COMMIT.
func (s *state) kill(id int) {
	r := s.relays[id]
	s.end(id)
	left := &s.relays[id]
	goesOn := left.statements()
	for i, c := range r.statements() {
		if c.phase == sent || c.phase == begins {
			*goesOn[i] = *c
		}
	}
	if r.heartbeat.phase == sent {
		left.heartbeat = r.heartbeat
	}
	if head := r.settlement.head; r.settlement.phase == begins {
		left.settlement, left.batches[head] = r.settlement, r.batches[head]
	}
	for t := range s.in.events {
		if s.in.home[t] == id && s.events[t].transaction == begun {
			s.events[t].transaction = ended
		}
	}
}

// executeLate executes the statements that a relay sent before its process was killed.
func (s *state) executeLate(id int) {
	r := &s.relays[id]
	for _, c := range r.statements() {
		if c.phase == sent {
			s.beginClaim(c)
		}
		if c.phase == begins {
			s.executeClaim(id, c)
		}
		*c = claim{}
	}
	if r.heartbeat.phase == sent {
		s.executeHeartbeat(id)
	}
	if r.settlement.phase == begins {
		s.executeSettlement(id)
	}
	*r = relay{state: gone}
}

// failOver replaces the server by its standby, or by itself after a crash. Open transactions roll back.
// The statements that the old server was executing get no answer. The new server assigns ids from the
// highest id in its tables on. So it may use the id of a transaction that has left no trace a second
// time.
func (s *state) failOver() {
	d := &s.db
	if s.in.standby == asynchronous {
		s.db, s.standby = s.standby, database{}
	}
	if !s.in.without.recovery {
		s.server++
	}
	d.next = 1
	for t := range s.in.events {
		w, e := &d.rows[t], &s.events[t]
		if w.state == open {
			*w = row{}
		}
		if w.state == absent && (e.transaction == written || e.transaction == committing) || e.transaction == rollingBack {
			e.transaction = ended
		}
		if w.state >= committed {
			d.next = max(d.next, w.xact+1)
		}
	}
	for _, w := range d.relays {
		d.next = max(d.next, w.low.next)
	}
	d.ended = d.next - 1
	s.locked, s.removal = 0, removal{}
	for id := range s.relays {
		s.loseStatements(id)
	}
}

// loseStatements ends the statements of a relay that a failed server was executing.
func (s *state) loseStatements(id int) {
	r := &s.relays[id]
	if r.claim.phase == begins {
		r.loseClaim()
	}
	if r.page.phase == begins {
		r.losePage()
	}
	if r.turn.phase == begins {
		r.loseTurn()
	}
	if r.topic.probe.phase == begins {
		s.loseProbe(r)
	}
	if r.settlement.phase == begins && r.runs() {
		s.loseSettlement(id)
	}
	if !r.runs() {
		r.unknownLeases = false
		r.settlement, r.batches = settlement{}, [mostEvents]batch{}
	}
}

// failovers passes the steps of the database's servers: a standby catches up, and a server fails.
func (s *state) failovers(to taker) {
	if s.left.failovers == 0 {
		return
	}
	if s.in.standby == asynchronous && s.standby != s.db {
		to(false, step{text: "the standby catches up"}, func(n *state) { n.standby = n.db })
	}
	to(false, step{text: "the server fails, and its successor takes over"}, func(n *state) {
		n.left.failovers--
		n.failOver()
	})
}
