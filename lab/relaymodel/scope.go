package relaymodel

// scope bounds the histories of a search.
type scope struct {
	// events is the number of events. Event t has the index t in the arrays of the model.
	events int
	// apart is true if each event has an aggregate of its own. Otherwise the events are versions of one aggregate.
	apart bool
	// home has, by event, the relay in the process that writes the event.
	home [mostEvents]int
	// handover is true for each event with a transaction that opens a handover.
	handover [mostEvents]bool
	// relays is the number of relays, 1 or 2.
	relays int
	// first is the number of relays that run from the beginning. The other ones may start at any time.
	first int
	// slow has, by relay, the kinds of statements that take several steps. Steps of other processes come in
	// between. Statements of the other kinds take effect in one step.
	slow [mostRelays]slow
	// left has the numbers of faults that may happen.
	left budget
	// kinds are the kinds of the faults that left.faults counts.
	kinds   kinds
	standby standby
	// retriesWait is true if pages of scans may leave out retries (queue.Claim.SkipRetries).
	retriesWait bool
	// noSessions is true if each relay that is taken over has lost its sessions. Then its leases count as none,
	// even if its process lives.
	noSessions bool
	// without has the parts of the protocol that the model leaves out, so that a search shows the fault that each
	// part prevents.
	without protocolParts
}

// slow is a set of kinds of statements: see scope.slow.
type slow struct{ claims, pages, turns, probes, settlements, heartbeats bool }

// kinds is a set of kinds of faults: lost answers to statements, transactions that roll back, outages of the
// broker, and relays that are told to end.
type kinds struct{ lostAnswers, rollbacks, outages, ends bool }

// budget has the numbers of faults that may happen, by kind:
//
//	faults      faults of the kinds in scope.kinds
//	stalls      processes that stand still until a lease is over, or until the other relay regards them as dead
//	kills       processes that are killed
//	failovers   failovers of the database
//	holds       times that a relay holds the tenant of the events
//	pauses      times that a relay pauses the topic of the events
//	refusals    refusals of an event by the broker
//	actions     actions of operators
//	purges      rows that the purge deletes
//	locks       times that another session locks a row
type budget struct{ faults, stalls, kills, failovers, holds, pauses, refusals, actions, purges, locks uint8 }

type standby uint8

const (
	synchronous  standby = iota // has every commit; also stands for a server that recovers from a crash
	asynchronous                // may lack the last commits
)

// protocolParts is a set of parts of the protocol. Each field names a part, and its comment states the rule of
// the part. If a field is true, the model leaves out the part. All parts but the first one are repairs
// of faults that searches have found.
type protocolParts struct {
	// heads: a claim takes an event only if the version before it is published.
	heads bool
	// inherited: a relay scans for the events of a dead relay even if its own low is as early as that of
	// the dead relay.
	inherited bool
	// endedRelays: a claim is followed by a scan if it left alone the leases of a relay that has ended
	// before the answer.
	endedRelays bool
	// metServer: the snapshot of a claim counts only if the relay has met no other server since it sent
	// the claim.
	metServer bool
	// returnedLeases: a relay that meets another server expects leases under its token, although it had
	// ended them. The new server may lack the statement that ended them.
	returnedLeases bool
	// recovery: a server that has recovered from a crash counts as another one.
	recovery bool
	// claimLow: if a relay meets another server while a claim is on its way, the relay's low covers the
	// claim.
	claimLow bool
	// floor: if a relay meets another server, the floor of this meeting takes the place of the lows of
	// its batches and handovers.
	floor bool
	// formerRetry: if a relay hands back a retry that it claimed in a former life of the server, it
	// scans for the retry. The row may have lost its retry time.
	formerRetry bool
	// refusals: a claim does nothing on a server that the relay has not met.
	refusals bool
	// elsewhere: a relay that gives up a handover scans for the event of the handover if another relay
	// has claimed the event.
	elsewhere bool
	// skippedTenants: a relay notes a low of the held tenant's events that its claims of new events have
	// skipped.
	skippedTenants bool
	// skippedParts: a relay notes the parts of the table in which its scans have skipped the held
	// tenant's events.
	skippedParts bool
	// leftByTurns: a relay notes a low of the events that a turn could not claim.
	leftByTurns bool
	// seenInTurns: the scan for a held tenant reads up to the latest snapshot of the tenant's turns.
	seenInTurns bool
	// tenantLow: the low of a relay covers the held tenant's events.
	tenantLow bool
	// skippedTypes: a relay notes a low of the events of a paused topic that it has skipped or handed
	// back.
	skippedTypes bool
	// lateResumes: if a topic resumes while a claim is on its way, the relay scans for the events that
	// the claim has skipped.
	lateResumes bool
	// searching: while a page of a search for probes is on its way, the relay's low covers the page.
	searching bool
	// parked: a claim leaves parked events alone.
	parked bool
	// retried: a settlement that publishes a retry makes the event behind it a retry, too.
	retried bool
	// removalLow: an operator who removes an event leaves a low in the table that has not seen events
	// committed during the removal.
	removalLow bool
	// settleLimit: the statement of a settlement ends before other relays regard its relay as dead.
	settleLimit bool
	// purged: an event may be claimed even if the purge has deleted the version before it.
	purged bool
	// lockedRows: a relay scans for an event that its claim has skipped because another session had
	// locked the row of the event.
	lockedRows bool
	// aroundLocks: a settlement that meets a locked row is tried again.
	aroundLocks bool
	// countedOnce: a refusal spends an attempt only if the event has as many attempts as when it was claimed.
	countedOnce bool
	// parkedOnce: the last refusal parks an event only if the event has as many attempts as when it was
	// claimed.
	parkedOnce bool
	// lapsed: a lease that a relay knows to be over stays over, even if the relay claims the event
	// again.
	lapsed bool
	// lostSearches: a relay scans for the events of a search that got no answer, even if the topic has
	// resumed since the search began.
	lostSearches bool
}

// initial returns the first state of the scope, in which the first relays run. They have registered, met
// each other, and scanned.
func (c *scope) initial() *state {
	s := &state{in: c, db: database{next: 1}, server: 1, left: c.left}
	for range 2 {
		for id := range c.first {
			s.relays[id].state = running
			s.sendHeartbeat(id, false)
			s.executeHeartbeat(id)
			s.answerHeartbeat(id)
			s.relays[id].scan = none // there are no events
		}
	}
	if c.standby == asynchronous {
		s.standby = s.db
	}
	return s
}
