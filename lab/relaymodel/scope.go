package relaymodel

// scope bounds the histories of a search.
type scope struct {
	// events is the number of events. They are versions of one aggregate, unless each is apart. home has the relay in the
	// process of each event's transaction, and handover says that the transaction opens a handover.
	events   int
	apart    bool
	home     [mostEvents]int
	handover [mostEvents]bool
	// relays is 1 or 2. first is how many of them run from the beginning. The others may start at any time.
	relays, first int
	// slow are the statements of each relay between whose phases other steps are taken. The others take effect at once.
	slow [mostRelays]slow
	// left are the faults that may happen. Those of left.faults are of these kinds.
	left    budget
	kinds   kinds
	standby standby
	// retriesWait says that pages of scans may leave retries out: Claim.SkipRetries.
	retriesWait bool
	// without are parts of the protocol that the model leaves out, so that a search shows what they are for.
	// noSessions says that each relay that is taken over has lost its sessions, so its leases count as none, also if it lives.
	noSessions bool
	without    parts
}

// slow are kinds of statements.
type slow struct{ claims, pages, turns, probes, settlements, heartbeats bool }

// kinds are kinds of faults.
type kinds struct{ lostAnswers, rollbacks, outages, ends bool }

// budget has how many faults may happen. A stall is a process that stands still until a lease is over, or until the other
// relay takes it for dead. holds is how often a relay may hold the tenant of the events, and pauses how often a relay may pause
// their topic. refusals is how often the broker may refuse an event, actions how often an operator may act, purges how many
// rows the purge may delete, and locks how often another session may lock a row.
type budget struct{ faults, stalls, kills, failovers, holds, pauses, refusals, actions, purges, locks uint8 }

type standby uint8

const (
	synchronous  standby = iota // it has every commit; also a server that recovers from a crash
	asynchronous                // it may lack the last commits
)

// parts are parts of the protocol. All but the first one are repairs of faults that searches have found.
type parts struct {
	// heads: a claim takes an event only if the version before it is published.
	heads bool
	// inherited: a relay scans for a dead relay's events even if its own low is as early.
	inherited bool
	// endedRelays: a claim is followed by a scan if a relay whose leases it left alone has ended since it was sent.
	endedRelays bool
	// metServer: the snapshot of a claim counts only if the relay has met no other server since it sent the claim.
	metServer bool
	// returnedLeases: a relay that meets another server may have leases that it has ended already.
	returnedLeases bool
	// recovery: a server that has recovered from a crash counts as another one.
	recovery bool
	// claimLow: the low of a relay that meets another server covers the claim that is on its way.
	claimLow bool
	// floor: the low of a batch or handover of a former life of the server is the floor of the present one.
	floor bool
	// formerRetry: a relay scans for a retry of a former life of the server that it hands back, because its mark may be lost.
	formerRetry bool
	// refusals: a claim does nothing on a server that the relay has not met.
	refusals bool
	// elsewhere: a relay that gives up a handover scans for its event if another relay has claimed it.
	elsewhere bool
	// skippedTenants: a relay notes from where its claims have skipped a held tenant's events.
	skippedTenants bool
	// skippedParts: a relay notes which parts of the table its scans have skipped.
	skippedParts bool
	// leftByTurns: a relay notes from where a turn has left events that it could not claim.
	leftByTurns bool
	// seenInTurns: a tenant's scan reads up to the snapshots of its turns.
	seenInTurns bool
	// tenantLow: the low of a relay covers the held tenant's events.
	tenantLow bool
	// skippedTypes: a relay notes from where it has skipped or handed back events of a paused topic.
	skippedTypes bool
	// lateResumes: a relay scans for events that a claim has skipped although the topic has resumed meanwhile.
	lateResumes bool
	// searching: the low of a relay covers the page of a search for probes that is on its way.
	searching bool
	// parked: a claim leaves parked events alone.
	parked bool
	// retried: a settlement makes the event behind a published retry a retry, too.
	retried bool
	// removalLow: an operator who removes an event leaves a low that has not seen an event which is committed meanwhile.
	removalLow bool
	// settleLimit: a settlement has ended when other relays take its relay for dead.
	settleLimit bool
	// purged: an event may be claimed if the version before it is not there any more.
	purged bool
	// lockedRows: a relay scans for an event that a claim has skipped because another session had locked its row.
	lockedRows bool
	// aroundLocks: a settlement that meets a locked row is tried again.
	aroundLocks bool
	// countedOnce: a refusal spends an attempt only if the event has as many attempts as when it was claimed.
	countedOnce bool
	// parkedOnce: the last refusal parks an event under the same condition.
	parkedOnce bool
	// lapsed: a lease that a relay knows to be over stays over, also if the relay claims the event again.
	lapsed bool
	// lostSearches: a relay scans for the events of a search without an answer, although the topic has resumed meanwhile.
	lostSearches bool
}

// initial returns the first state of the scope: the relays that run have registered, scanned and met each other.
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
