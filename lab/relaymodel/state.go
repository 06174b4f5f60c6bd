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
	// standby is the content of an asynchronous standby. It is zero if there is no such standby.
	standby database
	// server is the present life of the database's server (see "Lows and lives" in doc.go of package outbox).
	server uint8
	// locked are the events whose rows another session has locked.
	locked uint8
	// removal is an operator's removal of an event.
	removal removal
	// left has the numbers of faults that may still happen.
	left budget
	// broken is the rule that the last step has broken, or empty.
	broken rule
}

// database is the content of the tables outbox and outbox_relays.
type database struct {
	rows [mostEvents]row
	// relays has a row for each relay, and the row that a removal leaves.
	relays [mostRelays + 1]relayRow
	// ended is the highest id of a transaction that has ended.
	ended uint8
	// next is the id that the next transaction gets.
	next uint8
}

// row is the row of an event in the table outbox.
type row struct {
	state         rowState
	version, xact uint8
	published     bool
	retry         bool  // true if next_retry_at is set, and past
	attempts      uint8 // publish_attempts
	parked        bool  // true if parked_at is set
	marker        bool  // true if the event is the marker that has replaced a skipped event
	token         uint8 // lock_token: the relay counted from 1, or 0
	fresh         bool  // true if the lease of the relay in token is not over
}

type rowState uint8

const (
	absent rowState = iota
	open
	committed
	deleted // by the purge or an operator; the version is still known
)

// pending models "published_at IS NULL". A parked event is pending, too.
func (r row) pending() bool { return r.state == committed && !r.published }

// waits reports whether the event is pending and does not wait for an operator.
func (r row) waits() bool  { return r.pending() && !r.parked }
func (r row) leased() bool { return r.token != 0 && r.fresh }

// leasedBut is like leased, but the leases of the relays in the set gone count as none.
func (r row) leasedBut(gone uint8) bool { return r.leased() && !has(gone, int(r.token)-1) }

// relayRow is the row of a relay in the table outbox_relays.
type relayRow struct {
	exists bool
	low    snapshot
	// seen models seen_at, the time of the last heartbeat.
	seen seenAt
	// unanswered is true if the relay has got no answer to the heartbeat that wrote the row. So the
	// relay does not know the row as it is.
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
	// handover is true while the event's handover is open.
	handover bool
	// leaseOver is true if the relay knows that the lease of the handover is over.
	leaseOver bool
	// uncertain is true if a failed statement may have taken the lease from the event.
	uncertain bool
	// low is the low of the open handover.
	low snapshot
	// life is the life of the server in which low was taken.
	life uint8
	// expired is true if time has passed beyond the lease of the handover.
	expired bool
	// sent is true once the event has arrived at the broker.
	sent bool
	// acked is true once the broker has acknowledged the event.
	acked bool
	// refusals is how often the broker has refused the event since an operator last released it.
	refusals uint8
	// removed is true if an operator has removed the event.
	removed bool
}

type progress uint8

const (
	notBegun progress = iota
	begun             // its handover is open, if the scope has one for the event
	written
	committing // it has committed, and its process does not know this yet
	rollingBack
	ended // its process knows the outcome, or that it will not know it
)

// relay models a relay of package outbox: its followUps, its inFlight and its registration.
type relay struct {
	state relayState
	// closed is true if an ending relay accepts no more handovers, and looks for no more events of handovers.
	closed bool
	// seen is followUps.seen, the snapshot of the last claim of new events.
	seen snapshot
	// floor is meeting.floor, from which the relay scanned when it met the server.
	floor snapshot
	// server is meeting.life, the life of the server that the relay has met.
	server uint8
	// alive is followUps.aliveRelays, the set of the other living relays.
	alive uint8
	// gone is followUps.goneRelays, the set of the relays whose leases count as none.
	gone uint8
	// published models followUps.published: it has, by event, the lows of published versions.
	published [mostEvents]snapshot
	// taken is versions.takenLow, a low of the events for which a claim of new events looks.
	taken snapshot
	// scan is followUps.scanLow, the low from which the next scan starts.
	scan snapshot
	// scanning is followUps.scanning, the low from which the running scan started.
	scanning snapshot
	// unread are the unread pages of the running scan. Bit x is for the rows of transaction x, which was open in
	// scanning. Bit 0 is for the rows of all transactions that had not begun.
	unread uint8
	// scanLife is the life of the server in which the running scan began.
	scanLife uint8
	// unknownLeases is true while followUps.unknownLeasesUntil is in the future.
	unknownLeases bool
	// batches are the batches in flight, by head.
	batches [mostEvents]batch
	// claim, page and turn are the claims on their way: of new events, of a scan or of retries, and of a turn.
	claim, page, turn claim
	settlement        settlement
	heartbeat         heartbeat
	// tenant is the tenant of all events, if the relay holds it.
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

// batch models a leasedBatch, with the result of its publish.
type batch struct {
	exists         bool
	events         uint8 // a set
	low, lowBehind snapshot
	life           uint8
	// retry is true if the claim has found the head as a retry.
	retry bool
	// probe is true if the batch was chosen as a probe.
	probe bool
	// onTheWay is true if the broker has got a request of the batch before the topic's pause began.
	onTheWay bool
	// valid is true while the relay knows that the lease lasts.
	valid bool
	// again is true if a claim has found the batch while it was in flight.
	again bool
	// second is true if the batch waits for its second settlement, which hands it back.
	second bool
	// unresolved is true if the relay looks for the event of a handover (leasedBatch.unresolved).
	unresolved bool
	// leaseOver is true if the lease of that handover had ended before the relay made this batch.
	leaseOver bool
	// answered is true once the batch has a result, which the settler writes.
	answered bool
	// outage is true if a request of the batch has failed.
	outage bool
	// published is the set of the events that the broker has acknowledged.
	published uint8
	// refused is true if the broker has refused the first event that is not in published.
	refused bool
	// tried has, by event, the attempts in the event's row when it was claimed.
	tried [mostEvents]uint8
	// markers is the set of the events that were markers when they were claimed.
	markers uint8
}

func has(set uint8, i int) bool { return set>>i&1 == 1 }

// runs reports whether the relay's goroutines go on.
func (r *relay) runs() bool { return r.state == running || r.state == ending }

// statements returns the claims of the relay, whether they are on their way or not.
func (r *relay) statements() []*claim { return []*claim{&r.claim, &r.page, &r.turn, &r.topic.probe} }

// claims reports whether a claim is on its way.
func (r *relay) claims() bool {
	return r.claim.phase != idle || r.page.phase != idle || r.turn.phase != idle || r.topic.probe.phase != idle
}

// low models followUps.low: the low of relay id, which its next heartbeat writes into the table.
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

// lowOfLists models followUps.lowOfLists: a low of the relay's unfinished events, except published
// versions, batches in flight and open handovers.
func (s *state) lowOfLists(r *relay) snapshot {
	low := earliest(r.seen, r.taken, r.scan, s.covering(r, r.scanning, r.scanLife), s.lowOfTenant(r), r.topic.low)
	if p := &r.topic.probe; p.phase != idle && p.kind == probePage && !s.in.without.searching {
		low = earliest(low, s.covering(r, p.since, p.begun))
	}
	return low
}

// covering models meeting.low: low, or the floor if low is of a former life of the server.
func (s *state) covering(r *relay, low snapshot, life uint8) snapshot {
	if low == none || life == r.server || s.in.without.floor {
		return low
	}
	return r.floor
}

// addScan models followUps.addScan: the next scan starts from the earlier of two lows.
func (r *relay) addScan(from snapshot) { r.scan = earliest(r.scan, from) }

// sees returns the snapshot of a statement that begins now.
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

// follows models the second part of "is head" in claim.sql: it reports whether the version before event
// t is published, or is not in the table.
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

// nextPending models "next pending" of claim.sql: it returns the first pending event of t's aggregate
// behind the version, or -1.
func (c *scope) nextPending(rows *[mostEvents]row, t int, version uint8) int {
	next := -1
	for u := range c.events {
		if w := rows[u]; c.sameAggregate(t, u) && w.pending() && w.version > version && (next < 0 || w.version < rows[next].version) {
			next = u
		}
	}
	return next
}
