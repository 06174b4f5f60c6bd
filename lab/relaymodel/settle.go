package relaymodel

// settlement is a statement of settle.sql for one batch, from its begin to the answer.
type settlement struct {
	phase  phase
	head   uint8
	behind uint8 // "behind" of settle.sql: the next event behind a published retry, counted from 1, or 0
	mine   bool  // true if the head has the relay's lease
	// elsewhere is true if the head is pending without the relay's lease (queue.Settled.Elsewhere).
	elsewhere bool
	// locked is true if another session has locked a row of the batch. Then the statement writes nothing
	// (queue.Settled.Locked).
	locked bool
}

// last returns the version of the last published event of a batch, and the event. It returns version 0
// if no event is published.
func (s *state) last(b *batch) (version uint8, at int) {
	for t := range s.in.events {
		if w := s.db.rows[t]; has(b.published, t) && w.version > version {
			version, at = w.version, t
		}
	}
	return version, at
}

// beginSettlement models "behind" of settle.sql: the statement takes its snapshot, and finds the next
// event behind a published retry.
func (s *state) beginSettlement(id, head int) {
	r := &s.relays[id]
	b := &r.batches[head]
	r.settlement = settlement{phase: begins, head: uint8(head)}
	if version, _ := s.last(b); version > 0 && !b.failed() && b.retry {
		r.settlement.behind = uint8(s.in.nextPending(&s.db.rows, head, version) + 1)
	}
}

// executeSettlement models "write settlements" of settle.sql: it writes the result of the batch, if the
// head has the relay's lease.
func (s *state) executeSettlement(id int) {
	e := &s.relays[id].settlement
	b, head := &s.relays[id].batches[e.head], &s.db.rows[e.head]
	e.phase, e.mine = executed, head.state == committed && head.token == uint8(id)+1
	if !e.mine {
		e.elsewhere = head.pending()
		return
	}
	first := s.firstUnpublished(b)
	if e.locked = s.writes(b, e, first)&s.locked != 0; e.locked {
		return
	}
	s.publishedBy(b)
	switch {
	case b.failed() && first >= 0 && s.db.rows[first].pending():
		s.fail(b, first)
	case !b.failed() && b.published == 0:
		head.token, head.fresh = 0, false
	}
	if w := &s.db.rows[max(e.behind, 1)-1]; e.behind != 0 && !w.parked && !s.in.without.retried {
		w.retry = true
	}
}

// publishedBy models "published" of settle.sql: it marks the events that the broker has acknowledged.
func (s *state) publishedBy(b *batch) {
	for t := range s.in.events {
		if w := &s.db.rows[t]; has(b.published, t) && w.state == committed {
			w.published, w.retry, w.token, w.fresh = true, false, 0, false
		}
	}
}

// writes models "named" of settle.sql: it returns the set of the events with rows that the settlement
// writes. first is the first event of the batch that is not published, or -1.
func (s *state) writes(b *batch, e *settlement, first int) uint8 {
	rows := b.published | 1<<e.head
	if b.failed() && first >= 0 {
		rows |= 1 << first
	}
	if e.behind != 0 {
		rows |= 1 << (e.behind - 1)
	}
	return rows
}

// mostAttempts is Options.MaxAttempts.
const mostAttempts = 2

// failed reports whether the result of the batch is an outage or a refusal.
func (b *batch) failed() bool { return b.outage || b.refused }

// fail models "failed" of settle.sql: it writes the failure of event t, which Relay.settlement and
// Relay.refuse have made from the broker's answer.
func (s *state) fail(b *batch, t int) {
	w := &s.db.rows[t]
	w.token, w.fresh, w.retry = 0, false, true
	first := w.attempts == b.tried[t] // no statement has written this refusal yet
	if b.refused && (first || s.in.without.countedOnce) {
		w.attempts++
		if w.attempts > s.events[t].refusals {
			s.broken = "a refusal of an event is counted twice"
		}
		w.attempts = min(w.attempts, mostAttempts)
	}
	if b.refused && b.tried[t]+1 >= mostAttempts && (first || s.in.without.parkedOnce) {
		w.retry, w.parked = false, true
		if w.attempts < mostAttempts {
			s.broken = "an event is parked before its last attempt"
		}
	}
}

func (s *state) firstUnpublished(b *batch) int {
	first := -1
	for t := range s.in.events {
		w := s.db.rows[t] // a failover may have lost the row
		if has(b.events&^b.published, t) && w.state != absent && (first < 0 || w.version < s.db.rows[first].version) {
			first = t
		}
	}
	return first
}

// answerSettlement models the second half of settler.settle: the relay gets the answer to a settlement.
func (s *state) answerSettlement(id int) {
	r := &s.relays[id]
	a := r.settlement
	if a.locked && !s.in.without.aroundLocks {
		s.loseSettlement(id)
		return
	}
	r.settlement = settlement{}
	head := int(a.head)
	b := &r.batches[head]
	if !b.unresolved || a.mine || s.events[head].uncertain { // isMissing
		s.follow(r, head)
	}
	if b.unresolved {
		s.closeResolved(r, a)
	} else if !a.mine && !b.second {
		r.addScan(s.covering(r, b.low, b.life))
	}
	r.forget(head)
}

// closeResolved models settler.closeResolved: it closes the handover of an event for which the relay has
// looked.
func (s *state) closeResolved(r *relay, a settlement) {
	b := &r.batches[a.head]
	if b.leaseOver && a.elsewhere && !s.in.without.elsewhere {
		r.addScan(s.covering(r, b.low, b.life))
	}
	if b.leaseOver || a.mine {
		s.events[a.head].closeHandover()
	}
}

// follow models followUps.follow: it notes the work that follows from the result of a settled batch.
func (s *state) follow(r *relay, head int) {
	b := &r.batches[head]
	switch {
	case b.failed(): // ClaimRetries finds the event, or it is parked
	case b.published != 0:
		low := b.lowBehind
		if b.published != b.events {
			low = b.low
		}
		if version, t := s.last(b); version > 0 {
			list := &r.published
			if r.tenant.held {
				list = &r.tenant.published
			}
			list[t] = earliest(list[t], s.covering(r, low, b.life))
		}
	case b.retry && (b.life == r.server || s.in.without.formerRetry): // ClaimRetries finds the event
	case r.topic.known:
		s.noteSkippedTypes(r, s.covering(r, b.low, b.life))
	default:
		r.addScan(s.covering(r, b.low, b.life))
	}
}

// forget models settler.removeSettled: the batch is no longer in flight. If a claim has found the batch
// again meanwhile, a second settlement hands it back first.
func (r *relay) forget(head int) {
	b := &r.batches[head]
	if !b.again {
		*b = batch{}
		return
	}
	b.again, b.second = false, true
	b.published, b.outage, b.refused = 0, false, false
}

// loseSettlement models settler.keepLeased: a settlement gets no answer, or has met a locked row. A
// batch with a valid lease is settled again.
func (s *state) loseSettlement(id int) {
	r := &s.relays[id]
	head := int(r.settlement.head)
	r.settlement = settlement{}
	b, e := &r.batches[head], &s.events[head]
	e.uncertain = e.uncertain || b.unresolved
	switch {
	case b.valid:
	case b.unresolved && e.handover:
		r.forget(head)
	default:
		r.unknownLeases = true
		r.addScan(s.covering(r, b.low, b.life))
		r.forget(head)
	}
}
