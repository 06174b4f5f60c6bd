package relaymodel

// The steps of a relay's goroutines.

// of returns the step with this text, of relay id.
func of(id int, text string) step { return step{text: text, relay: id} }

// claimable reports whether the relay may send claims: it runs, and has its row in the table of relays.
func (r *relay) claimable() bool { return r.state == running && r.seen != none }

// claimsNew reports whether the relay may send claims of new events. It also sends them after it was told to end.
func (r *relay) claimsNew() bool {
	return r.claimable() || r.state == ending && !r.closed && r.seen != none
}

// stepsOfClaims models claimLoop and then lastClaims: claims of new events.
func stepsOfClaims(s *state, to taker, id int) {
	r := &s.relays[id]
	if !r.runs() || r.claim.phase == idle && !r.claimsNew() {
		return
	}
	statement{of(id, "relay {r} claims new events"), s.in.slow[id].claims, [executed]func(*state){
		idle:   func(n *state) { n.sendClaim(id) },
		sent:   func(n *state) { n.beginClaim(&n.relays[id].claim) },
		begins: func(n *state) { n.executeClaim(id, &n.relays[id].claim) },
	}, func(n *state) { n.answerClaim(id) }, func(n *state) { n.relays[id].loseClaim() }}.pass(s, to, r.claim.phase)
}

// stepsOfScans models the part of scanLoop that reads pages of a scan. The sweep is left out, because it
// would find each event in the end.
func stepsOfScans(s *state, to taker, id int) {
	switch r := &s.relays[id]; {
	case r.page.phase != idle && r.page.kind == claimPage || r.page.phase == idle && r.claimable() && r.scanning != none:
		s.page(to, id, claimPage, of(id, "relay {r} scans a page"), false)
		if r.page.phase == idle && s.in.retriesWait {
			s.page(to, id, claimPage, of(id, "relay {r} scans a page without retries"), true)
		}
	case r.page.phase == idle && r.claimable() && r.scan != none:
		to(true, of(id, "relay {r} begins a scan"), func(n *state) { n.relays[id].beginScan() })
	}
}

// stepsOfRetries models the part of scanLoop that claims retries. Here a retry is due as soon as it is
// written.
func stepsOfRetries(s *state, to taker, id int) {
	r, due := &s.relays[id], false
	for _, w := range s.db.rows {
		due = due || w.pending() && w.retry
	}
	if r.page.phase != idle && r.page.kind == claimRetries || r.page.phase == idle && r.claimable() && due {
		s.page(to, id, claimRetries, of(id, "relay {r} claims retries"), false)
	}
}

func (s *state) page(to taker, id int, kind claimKind, name step, withoutRetries bool) {
	if !s.relays[id].runs() {
		return
	}
	statement{name, s.in.slow[id].pages, [executed]func(*state){
		idle:   func(n *state) { n.sendPage(id, kind); n.relays[id].page.withoutRetries = withoutRetries },
		sent:   func(n *state) { n.beginClaim(&n.relays[id].page) },
		begins: func(n *state) { n.executeClaim(id, &n.relays[id].page) },
	}, func(n *state) { n.answerPage(id) }, func(n *state) { n.relays[id].losePage() }}.pass(s, to, s.relays[id].page.phase)
}

// stepsOfPublishers models the publishers of a relay, with the answers of the broker to each batch in
// flight.
func stepsOfPublishers(s *state, to taker, id int) {
	r := &s.relays[id]
	for t := range s.in.events {
		b := &r.batches[t]
		if !b.exists || b.answered {
			continue
		}
		publish := func(text string, fair bool, a answer) {
			p, do := step{text: text, relay: id, event: t}, func(n *state) { n.publish(id, t, a) }
			if fair {
				to(true, p, do)
			} else {
				s.fault(s.in.kinds.outages, to, p, do)
			}
		}
		unsendable := !b.valid || r.topic.paused && !b.probe && !b.onTheWay
		if r.state == ending || unsendable {
			publish("relay {r} hands back the batch of event {e} unsent", true, answer{})
		}
		if unsendable {
			continue
		}
		all, first := b.events, uint8(1)<<t
		publish("relay {r} publishes the batch of event {e}", true, answer{arrived: all, acked: all})
		publish("relay {r} publishes the batch of event {e}, and gets no answer", false, answer{arrived: all, outage: true})
		publish("relay {r} fails to publish the batch of event {e}", false, answer{outage: true})
		if all != first {
			publish("relay {r} publishes event {e}, and fails to publish the next one", false, answer{arrived: first, acked: first, outage: true})
			publish("relay {r} publishes event {e}, and stops before the next one", false, answer{arrived: first, acked: first})
		}
		s.refusals(to, id, t)
	}
}

// refusals passes the answers of the broker that refuse an event of the batch with this head. It passes
// none in a paused topic, because there a refusal has the effect of an outage.
func (s *state) refusals(to taker, id, head int) {
	b := &s.relays[id].batches[head]
	if s.left.refusals == 0 || s.relays[id].topic.paused {
		return
	}
	refuse := func(text string, a answer) {
		to(false, step{text: text, relay: id, event: head}, func(n *state) { n.left.refusals--; n.publish(id, head, a) })
	}
	refuse("the broker refuses event {e} of relay {r}", answer{refused: true})
	if first := uint8(1) << head; b.events != first {
		refuse("relay {r} publishes event {e}, and the broker refuses the next one", answer{arrived: first, acked: first, refused: true})
	}
}

// stepsOfSettler models settleLoop, with one batch in each statement.
func stepsOfSettler(s *state, to taker, id int) {
	r := &s.relays[id]
	if !r.runs() {
		return
	}
	if r.settlement.phase != idle {
		s.settles(to, id, int(r.settlement.head))
		return
	}
	for t := range s.in.events {
		if b := &r.batches[t]; b.exists && b.answered {
			s.settles(to, id, t)
			s.fault(s.in.kinds.lostAnswers, to, step{text: "relay {r} cannot settle event {e}", relay: id, event: t},
				func(n *state) { n.beginSettlement(id, t); n.loseSettlement(id) })
		} else if b.exists && b.valid && s.db.rows[t].token != uint8(id)+1 {
			to(false, step{text: "relay {r} notices that it has lost the lease of event {e}", relay: id, event: t},
				func(n *state) { n.relays[id].batches[t].valid = false })
		}
	}
}

func (s *state) settles(to taker, id, t int) {
	statement{step{text: "relay {r} settles event {e}", relay: id, event: t}, s.in.slow[id].settlements, [executed]func(*state){
		idle:   func(n *state) { n.beginSettlement(id, t) },
		begins: func(n *state) { n.executeSettlement(id) },
	}, func(n *state) { n.answerSettlement(id) }, func(n *state) { n.loseSettlement(id) }}.pass(s, to, s.relays[id].settlement.phase)
}

// stepsOfHeartbeats models heartbeatLoop. The first heartbeat registers the relay.
func stepsOfHeartbeats(s *state, to taker, id int) {
	r := &s.relays[id]
	if r.state != running && (r.state != ending || r.heartbeat.phase == idle) {
		return
	}
	statement{of(id, "relay {r} writes a heartbeat"), s.in.slow[id].heartbeats, [executed]func(*state){
		idle: func(n *state) { n.sendHeartbeat(id, false) },
		sent: func(n *state) { n.executeHeartbeat(id) },
	}, func(n *state) { n.answerHeartbeat(id) }, func(n *state) { n.loseHeartbeat(id) }}.pass(s, to, r.heartbeat.phase)
}
