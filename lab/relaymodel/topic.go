package relaymodel

import "math/bits"

// topic is the topicPause of all events' topic, with what followUps and the probes know of it.
type topic struct {
	// paused is topicPause.isPaused. known says that the topic's types are in pausedTypes, and skipped that they are in
	// skippedTypes, with low.
	paused, known, skipped bool
	low                    snapshot
	// probing is the low of the running search for probes, unread are its pages, as in relay, and life is the server's life when
	// it began.
	probing      snapshot
	unread, life uint8
	// probe is a search on its way, and late says that the pause has ended since it was sent. out says that a probe has no
	// result yet.
	probe     claim
	late, out bool
}

// noteSkippedTypes is followUps.noteSkippedTypes.
func (s *state) noteSkippedTypes(r *relay, from snapshot) {
	if !s.in.without.skippedTypes {
		r.topic.low, r.topic.skipped = earliest(r.topic.low, from), true
	}
}

// pause begins a pause: topicPause.pause. A request that is on its way goes on.
func (r *relay) pause() {
	r.topic.paused = true
	for t := range r.batches {
		b := &r.batches[t]
		b.onTheWay = b.exists && b.valid && !b.answered
	}
}

// resume ends a pause: topicPause.resume and followUps.topicResumed. No probe that was chosen before is one any more.
func (s *state) resume(r *relay) {
	if r.topic.paused {
		r.topic.paused, r.topic.known, r.topic.out = false, false, false
		r.topic.late = r.topic.probe.phase != idle
		r.schedulePausedScan()
		for t := range r.batches {
			r.batches[t].probe, r.batches[t].onTheWay = false, false
		}
	}
}

func (r *relay) schedulePausedScan() {
	if r.topic.low != none {
		r.addScan(r.topic.low)
	}
	r.topic.low, r.topic.skipped = none, false
}

// setPausedTypes is followUps.setPausedTypes.
func (r *relay) setPausedTypes(without parts) {
	r.topic.known = r.topic.paused
	if r.topic.skipped && !r.topic.known && !without.lateResumes {
		r.schedulePausedScan()
	}
}

// sendProbe is the first half of Relay.candidates.
func (s *state) sendProbe(id int, kind claimKind) {
	r := &s.relays[id]
	p := &r.topic
	if low := s.lowOfLists(r); kind == probePage &&
		(p.unread == 0 || p.life != r.server || p.probing.before(low)) { // followUps.search
		p.probing, p.life = low, r.server
		p.unread = p.probing.open | 1
	}
	p.out = true
	p.probe = claim{phase: sent, kind: kind, alive: r.alive, gone: r.gone, met: r.server, begun: r.server, unknownLeases: r.unknownLeases}
	if kind == probePage {
		p.probe.since, p.probe.begun = p.probing, p.life
		for !has(p.unread, int(p.probe.part)) {
			p.probe.part++
		}
	}
}

// answerProbe is the second half of Relay.probeTopic. The first candidate becomes the probe, unless the pause has ended meanwhile.
func (s *state) answerProbe(id int) {
	r := &s.relays[id]
	p := &r.topic
	if p.probe.isRefused(s.in.without) {
		r.endProbe()
		p.endSearch()
		return
	}
	c, late := p.probe, p.late
	r.endProbe()
	chosen := bits.TrailingZeros8(c.heads)
	isNew := c.heads != 0 && !r.batches[chosen].exists
	s.dispatch(id, &c)
	switch {
	case c.heads != 0:
		r.batches[chosen].probe = isNew && !late
		p.out = isNew && !late
		p.endSearch()
	case c.kind == probePage && p.unread != 0:
		if p.unread &^= 1 << c.part; p.unread == 0 {
			p.endSearch()
			if !late {
				s.resumeIdle(r)
			}
		}
	}
}

// endProbe ends a search, or a failed one: topicPause.postpone.
func (r *relay) endProbe() {
	p := &r.topic
	p.probe, p.late = claim{}, false
	p.out = false
}

// endSearch ends the scan for probes.
func (p *topic) endSearch() { p.unread, p.life, p.probing = 0, 0, none }

// resumeIdle is topicPause.resumeIdle, if no event waits for the topic.
func (s *state) resumeIdle(r *relay) {
	for t := range s.in.events {
		if w := s.db.rows[t]; w.pending() && w.retry || r.batches[t].exists {
			return
		}
	}
	s.resume(r)
}

// loseProbe is Relay.searchFailed. It ends the scan.
func (s *state) loseProbe(r *relay) {
	if p := &r.topic.probe; p.kind == probePage {
		r.topic.endSearch()
		if !s.in.without.lostSearches { // followUps.searchLost
			s.noteSkippedTypes(r, s.covering(r, p.since, p.begun))
		}
	}
	r.endProbe()
	r.unknownLeases = true
}

// stepsOfTopic are those of the topic's pause, and of probeLoop. A pause begins after failures, which may be those of other events.
func stepsOfTopic(s *state, to taker, id int) {
	r := &s.relays[id]
	p := &r.topic
	switch {
	case !r.runs():
	case p.probe.phase != idle:
		s.probe(to, id, p.probe.kind)
	case !r.claimable():
	case !p.paused:
		if s.left.pauses > 0 {
			to(false, of(id, "the topic of relay {r} is paused"), func(n *state) { n.left.pauses--; n.relays[id].pause() })
		}
	case !p.out:
		// Retries come first, because a search among the pages, which finds nothing, is repeated for ever.
		for t := range s.in.events {
			if w := s.db.rows[t]; w.pending() && w.retry && !w.leasedBut(r.gone) {
				s.probe(to, id, probeRetries)
				break
			}
		}
		s.probe(to, id, probePage)
	}
}

func (s *state) probe(to taker, id int, kind claimKind) {
	name := of(id, "relay {r} looks for a probe in a page")
	if kind == probeRetries {
		name = of(id, "relay {r} looks for a probe among the retries")
	}
	statement{name, s.in.slow[id].probes, [executed]func(*state){
		idle:   func(n *state) { n.sendProbe(id, kind) },
		sent:   func(n *state) { n.beginClaim(&n.relays[id].topic.probe) },
		begins: func(n *state) { n.executeClaim(id, &n.relays[id].topic.probe) },
	}, func(n *state) { n.answerProbe(id) }, func(n *state) { n.loseProbe(&n.relays[id]) }}.pass(s, to, s.relays[id].topic.probe.phase)
}
