package relaymodel

import "math/bits"

// topic models a topicPause. All events of a scope are of one topic. topic also has the fields of followUps and
// of probeScan that are about the topic.
type topic struct {
	// paused is topicPause.isPaused.
	paused bool
	// known is true if the topic's types are in followUps.pausedTypes.
	known bool
	// skipped is true if the topic's types are in followUps.skippedTypes.
	skipped bool
	// low is the snapshot of the topic's types in followUps.skippedTypes.
	low snapshot
	// probing is probeScan.low, the low from which the running search for probes reads pages.
	probing snapshot
	// unread models probeScan.parts: it has the unread pages of the search, as relay.unread has those of a scan.
	unread uint8
	// life is the life of the server in which the search began.
	life uint8
	// probe is the claim of the search that is on its way.
	probe claim
	// late is true if the pause has ended since the relay sent that claim.
	late bool
	// out is true if a search is on its way, or a probe has no result yet (topicPause.probesOut).
	out bool
}

// noteSkippedTypes models followUps.noteSkippedTypes: the relay has skipped events of the topic. from is
// a low of these events.
func (s *state) noteSkippedTypes(r *relay, from snapshot) {
	if !s.in.without.skippedTypes {
		r.topic.low, r.topic.skipped = earliest(r.topic.low, from), true
	}
}

// pause models topicPause.pause: it begins a pause. A request that is on its way goes on.
func (r *relay) pause() {
	r.topic.paused = true
	for t := range r.batches {
		b := &r.batches[t]
		b.onTheWay = b.exists && b.valid && !b.answered
	}
}

// resume models topicPause.resume and followUps.topicResumed: it ends a pause. A batch that was chosen
// as a probe in that pause is a probe no more.
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

// setPausedTypes models followUps.setPausedTypes: the next claims skip the topic's events if the topic
// is paused now.
func (r *relay) setPausedTypes(without protocolParts) {
	r.topic.known = r.topic.paused
	if r.topic.skipped && !r.topic.known && !without.lateResumes {
		r.schedulePausedScan()
	}
}

// sendProbe models the first half of Relay.candidates: the relay sends a claim that looks for a probe.
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

// answerProbe models the second half of Relay.probeTopic: the relay gets the answer to a claim that
// looks for a probe. The first candidate becomes the probe, unless the pause has ended meanwhile.
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

// endProbe models topicPause.postpone: no claim that looks for a probe is on its way, and no probe is
// out.
func (r *relay) endProbe() {
	p := &r.topic
	p.probe, p.late = claim{}, false
	p.out = false
}

// endSearch ends the search: the next claim of a page begins a new one.
func (p *topic) endSearch() { p.unread, p.life, p.probing = 0, 0, none }

// resumeIdle models topicPause.resumeIdle: it ends the pause if no event waits for the topic.
func (s *state) resumeIdle(r *relay) {
	for t := range s.in.events {
		if w := s.db.rows[t]; w.pending() && w.retry || r.batches[t].exists {
			return
		}
	}
	s.resume(r)
}

// loseProbe models Relay.searchFailed: a claim that looks for a probe gets no answer. If it was a page,
// the search ends.
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

// stepsOfTopic models probeLoop. It also has the step in which a pause begins. In the code a pause
// begins after failures, which may be those of other events.
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
