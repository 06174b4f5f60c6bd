package relaymodel

const (
	// mostEvents is the largest number of events in a scope.
	mostEvents = 3
	// mostRelays is the number of relays. The third one runs only in a continuation in which no other runs.
	mostRelays = 3
)

// state is a state of the whole system. Two states are the same if all their fields are equal, so a field that means
// nothing at the moment has its zero value.
type state struct {
	in     *scope
	db     database
	events [mostEvents]event
	relays [mostRelays]relay
	// standby is what an asynchronous standby has. It is zero without one.
	standby database
	// server is the life of the database's server.
	server uint8
	// locked are the events whose rows another session has locked.
	locked uint8
	// removal is an operator's removal of an event.
	removal removal
	// left are the faults that may still happen.
	left budget
	// broken is the rule that the last step has broken, or empty.
	broken rule
}

// database has what has been written: the tables outbox and outbox_relays.
type database struct {
	rows [mostEvents]row
	// relays has a row for each relay, and the row that a removal leaves.
	relays [mostRelays + 1]relayRow
	// ended is the latest transaction that has ended, and next is the id of the next one.
	ended, next uint8
}

// row is the row of an event in the table outbox.
type row struct {
	state         rowState
	version, xact uint8
	published     bool
	retry         bool  // next_retry_at is set, and past
	attempts      uint8 // publish_attempts
	// parked says that parked_at is set. marker says that the event is the marker of a skipped one.
	parked, marker bool
	token          uint8 // lock_token: the relay counted from 1, or 0
	fresh          bool  // the lease with that token is not over
}

type rowState uint8

const (
	absent rowState = iota
	open
	committed
	deleted // by the purge or an operator; the version is still known
)

// pending is "published_at IS NULL". A parked event is pending, too, but waits for an operator.
func (r row) pending() bool { return r.state == committed && !r.published }
func (r row) waits() bool   { return r.pending() && !r.parked }
func (r row) leased() bool  { return r.token != 0 && r.fresh }

// leasedBut is leased, where the leases of the relays in the set gone count as none.
func (r row) leasedBut(gone uint8) bool { return r.leased() && !has(gone, int(r.token)-1) }

// relayRow is the row of a relay in the table outbox_relays.
type relayRow struct {
	exists bool
	low    snapshot
	// seen stands for seen_at.
	seen seenAt
	// unanswered says that the relay does not know the row as it is, because the heartbeat that wrote it is not answered.
	unanswered bool
}

type seenAt uint8

const (
	lately seenAt = iota
	longAgo
	never // the relay has ended
)

// event is an event as its transaction, its handover and the broker know it.
type event struct {
	transaction progress
	// handover says that the handover is open. low is its snapshot, of this life of the server. leaseOver says that the relay
	// knows that its lease is over. uncertain says that a statement has failed that may have taken the lease from the event.
	handover, leaseOver, uncertain bool
	low                            snapshot
	life                           uint8
	// expired says that the lease was over before the event was written.
	expired     bool
	sent, acked bool
	// refusals is how often the broker has refused the event since an operator has acted on it. removed says that an operator
	// has removed it.
	refusals uint8
	removed  bool
}

type progress uint8

const (
	notBegun progress = iota
	begun             // with a handover, if the scope has one for the event
	written
	committing // it has committed, and its process does not know
	rollingBack
	ended // its process knows the outcome, or that it will not know it
)

// relay is a relay of the package outbox: its followUps, inFlight and registration.
type relay struct {
	state relayState
	// closed says that an ending relay takes no more handovers, and looks for none.
	closed bool
	// seen is the snapshot of the last claim, server and floor are the meeting, alive is a set of relays.
	// gone is goneRelays.
	seen, floor         snapshot
	server, alive, gone uint8
	// published has the lows of the last published events of aggregates; taken is takenLow of a claim.
	published [mostEvents]snapshot
	taken     snapshot
	// scan and scanning are scanLow and scanning of outbox's followUps. unread are the pages of the running scan: bit x for the rows of the
	// transaction x that was open, and bit 0 for the rows of all later ones. scanLife is the server's life when it began.
	scan, scanning   snapshot
	unread, scanLife uint8
	// unknownLeases says that unknownLeasesUntil is in the future.
	unknownLeases bool
	batches       [mostEvents]batch // by head
	// The statements that are on their way.
	claim, page, turn claim
	settlement        settlement
	heartbeat         heartbeat
	// tenant is the tenant of all events, while it is held.
	tenant tenant
	topic  topic
}

type relayState uint8

const (
	notStarted relayState = iota
	running
	ending
	gone
)

// batch is a leasedBatch, and its result once it is answered.
type batch struct {
	exists         bool
	events         uint8 // a set
	low, lowBehind snapshot
	life           uint8
	retry, probe   bool // the head was a retry; the batch was chosen as a probe
	// onTheWay says that the broker has a request of the batch, which was sent before the topic's pause began.
	onTheWay bool
	// valid says that the relay knows the lease to last. again says that a claim has found the batch in flight. second says
	// that its settlement is the second one.
	valid, again, second bool
	// unresolved and leaseOver are as in leasedBatch.
	unresolved, leaseOver bool
	answered, outage      bool
	published             uint8 // a set
	// refused says that the broker has refused the first event that is not published. tried are the attempts of the events
	// when they were claimed, and markers the set of the markers among them.
	refused bool
	tried   [mostEvents]uint8
	markers uint8
}

func has(set uint8, i int) bool { return set>>i&1 == 1 }

// runs reports whether the relay's goroutines go on.
func (r *relay) runs() bool { return r.state == running || r.state == ending }

// statements are the claims of the relay.
func (r *relay) statements() []*claim { return []*claim{&r.claim, &r.page, &r.turn, &r.topic.probe} }

// claims reports whether a claim is on its way.
func (r *relay) claims() bool {
	return r.claim.phase != idle || r.page.phase != idle || r.turn.phase != idle || r.topic.probe.phase != idle
}

// low is followUps.low.
func (s *state) low(id int) snapshot {
	r := &s.relays[id]
	low := s.lowOfLists(r)
	for t := range s.in.events {
		b, e := &r.batches[t], &s.events[t]
		low = earliest(low, r.published[t], s.covering(r, b.low, b.life))
		if s.in.home[t] == id {
			low = earliest(low, s.covering(r, e.low, e.life))
		}
	}
	return low
}

// lowOfLists is followUps.lowOfLists.
func (s *state) lowOfLists(r *relay) snapshot {
	low := earliest(r.seen, r.taken, r.scan, s.covering(r, r.scanning, r.scanLife), s.lowOfTenant(r), r.topic.low)
	if p := &r.topic.probe; p.phase != idle && p.kind == probePage && !s.in.without.searching {
		low = earliest(low, s.covering(r, p.since, p.begun))
	}
	return low
}

// covering is meeting.low.
func (s *state) covering(r *relay, low snapshot, life uint8) snapshot {
	if low == none || life == r.server || s.in.without.floor {
		return low
	}
	return r.floor
}

// addScan is followUps.addScan.
func (r *relay) addScan(from snapshot) { r.scan = earliest(r.scan, from) }

// sees is the snapshot of a statement that begins now.
func (d *database) sees() snapshot {
	s := snapshot{next: d.ended + 1}
	for _, r := range d.rows {
		if r.state == open && r.xact < s.next {
			s.open |= 1 << r.xact
		}
	}
	return s
}

// sameAggregate reports whether two events are of one aggregate.
func (c *scope) sameAggregate(t, u int) bool { return t == u || !c.apart }

// follows reports whether the version before event t is published, or is not there: the second part of "is head" in claim.sql.
func (c *scope) follows(rows *[mostEvents]row, t int) bool {
	newest, published := uint8(0), !c.without.purged || rows[t].version == 1
	for u := range c.events {
		if w := rows[u]; c.sameAggregate(t, u) && w.state == committed && w.version < rows[t].version && w.version > newest {
			newest, published = w.version, w.published
		}
	}
	return published
}

// blocked reports whether an event is parked, or behind a parked one.
func (s *state) blocked(t int) bool {
	for u := range s.in.events {
		if w := s.db.rows[u]; s.in.sameAggregate(t, u) && w.parked && w.pending() && w.version <= s.db.rows[t].version {
			return true
		}
	}
	return false
}

// nextPending is "next pending" in claim.sql: the first pending event of t's aggregate behind this version, or -1.
func (c *scope) nextPending(rows *[mostEvents]row, t int, version uint8) int {
	next := -1
	for u := range c.events {
		if w := rows[u]; c.sameAggregate(t, u) && w.pending() && w.version > version && (next < 0 || w.version < rows[next].version) {
			next = u
		}
	}
	return next
}
