package relaymodel

// begin begins the transaction that writes event t. It opens the event's handover, if the scope has one:
// this models followUps.open.
func (s *state) begin(t int) {
	e := &s.events[t]
	e.transaction = begun
	if s.in.handover[t] {
		r := &s.relays[s.in.home[t]]
		e.handover, e.low, e.life = true, r.seen, r.server
	}
}

// mayBegin reports whether the transaction that writes event t can begin. Transactions begin in the
// order of the events, because another order is the same with other names. A handover needs a relay that
// runs, has claimed, holds no tenant and has no paused topic.
func (s *state) mayBegin(t int) bool {
	if t > 0 && s.events[t-1].transaction == notBegun {
		return false
	}
	r := &s.relays[s.in.home[t]]
	return !s.in.handover[t] || r.state == running && r.seen != none && !r.tenant.held && !r.topic.paused
}

// mayWrite reports whether no open transaction has the lock of the aggregate of event t.
func (s *state) mayWrite(t int) bool {
	for u := range s.in.events {
		if s.in.sameAggregate(t, u) && s.db.rows[u].state == open {
			return false
		}
	}
	return true
}

// write models outbox.Append, or Handover.Append if the event has a handover: see insertLeased in
// insert.go.
func (s *state) write(t int) {
	e, w := &s.events[t], &s.db.rows[t]
	newest := uint8(0)
	for u := range s.in.events {
		if o := s.db.rows[u]; s.in.sameAggregate(t, u) && o.state >= committed {
			newest = max(newest, o.version)
		}
	}
	e.transaction = written
	*w = row{state: open, version: newest + 1, xact: s.db.next}
	s.db.next++
	if !s.in.handover[t] {
		return
	}
	if s.in.follows(&s.db.rows, t) {
		w.token, w.fresh = uint8(s.in.home[t])+1, !e.expired
	} else {
		e.closeHandover()
	}
}

// finish ends the transaction in the database, by COMMIT if commits is true and by ROLLBACK otherwise.
func (s *state) finish(t int, commits bool) {
	w, e := &s.db.rows[t], &s.events[t]
	s.db.ended = max(s.db.ended, w.xact)
	if commits {
		w.state, e.transaction = committed, committing
	} else {
		*w, e.transaction = row{}, rollingBack
	}
}

// accept models Relay.accept and inFlight.accept: the process knows of the commit, and has called
// Handover.Committed.
func (s *state) accept(t int) {
	e, r := &s.events[t], &s.relays[s.in.home[t]]
	b := &r.batches[t]
	switch {
	case !e.handover || e.expired || !r.runs() || r.closed || b.unresolved:
	case b.exists:
		e.closeHandover()
	default:
		*b = batch{exists: true, events: 1 << t, low: e.low, lowBehind: e.low, life: e.life, valid: true}
		e.closeHandover()
	}
}

// mayHandBack reports whether inFlight.tryHandBack would make a batch of event t.
func (s *state) mayHandBack(t int) bool {
	r := &s.relays[s.in.home[t]]
	return s.events[t].handover && r.runs() && !r.closed && !r.batches[t].exists
}

// handBack models inFlight.tryHandBack: the relay looks for the event of an open handover, and takes the
// lease from it.
func (s *state) handBack(t int) {
	if e := &s.events[t]; s.mayHandBack(t) {
		s.relays[s.in.home[t]].batches[t] = batch{
			exists: true, events: 1 << t, low: e.low, lowBehind: e.low, life: e.life, valid: !e.expired,
			unresolved: true, leaseOver: e.leaseOver, answered: true,
		}
	}
}

func (e *event) closeHandover() { e.handover, e.leaseOver, e.low, e.life = false, false, none, 0 }

// expire ends the lease of event t, and that of its open handover, because time has passed.
func (s *state) expire(t int) {
	e, w := &s.events[t], &s.db.rows[t]
	if e.handover {
		e.expired = true
	}
	if owner := int(w.token) - 1; owner >= 0 {
		w.fresh = false
		s.relays[owner].batches[t].valid = false
	}
	if e.handover {
		s.relays[s.in.home[t]].batches[t].valid = false
	}
}

// answer is the answer of the broker to the requests of a batch.
type answer struct {
	// arrived is the set of the events that have arrived at the broker.
	arrived uint8
	// acked is the set of the events that the broker has acknowledged.
	acked uint8
	// outage is true if the request behind the events in acked has failed.
	outage bool
	// refused is true if the broker has refused the event behind those in acked.
	refused bool
}

// publish models publisher.publish and the broker. The batch of the event head gets the answer a.
func (s *state) publish(id, head int, a answer) {
	b := &s.relays[id].batches[head]
	for t := range s.in.events {
		if has(a.arrived, t) {
			s.arrive(t, a.arrived, b.markers)
		}
	}
	for t := range s.in.events {
		s.events[t].acked = s.events[t].acked || has(a.acked, t)
	}
	b.answered, b.published, b.outage, b.refused, b.onTheWay = true, a.acked, a.outage, a.refused, false
	if first := s.firstUnpublished(b); a.refused && first >= 0 {
		s.events[first].refusals++
	}
	if r := &s.relays[id]; a.acked != 0 {
		s.resume(r)
	} else if b.probe {
		r.topic.out = false // the pause goes on
	}
}

// isSettled reports whether versions behind the event may be sent: the event is acknowledged, or an
// operator has removed it. A failover may undo the removal.
func (e *event) isSettled() bool { return e.acked || e.removed }

// arrive checks that event t may arrive at the broker now. request is the set of the events in the same
// request. An event that a failover has lost may arrive.
func (s *state) arrive(t int, request, markers uint8) {
	e, w := &s.events[t], s.db.rows[t]
	switch {
	case w.marker && !has(markers, t) || w.state == deleted && e.removed:
		s.broken = "an event is sent that an operator has skipped"
	case w.state < committed && s.in.standby != asynchronous:
		s.broken = "an event is sent whose transaction has not committed"
	case w.state == committed && !e.sent && s.overtakes(t, request):
		s.broken = "an event is sent before the version before it is acknowledged"
	}
	e.sent = true
}

// overtakes reports whether event t overtakes a version before it: a version that is not settled and not
// in the same request.
func (s *state) overtakes(t int, request uint8) bool {
	for u := range s.in.events {
		o, e := s.db.rows[u], &s.events[u]
		before := s.in.sameAggregate(t, u) && o.state == committed && o.version < s.db.rows[t].version
		if before && !e.isSettled() && !has(request, u) {
			return true
		}
	}
	return false
}
