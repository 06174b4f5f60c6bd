package outbox

import (
	"slices"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// followUps has the work that one goroutine of a relay leaves for another goroutine. The work is
// claims, scans and retries, each with the time when it is due. The method low computes the relay's
// low watermark from followUps. In the names of fields and in comments, a "low" is a snapshot that
// did not see certain events. So a scan of the rows that the low did not see finds these events.
//
// All unfinished work is either in one of these lists or in flight. Work that moves between a
// list and the batches in flight is added to its new place before it is removed from the old
// one. The lock of followUps is taken before the lock of inFlight.
type followUps struct {
	mu sync.Mutex
	// seen is the snapshot of the last claim of new events. An event is new if that snapshot did
	// not see the event. seen is empty until the relay has its row in the table of relays.
	seen queue.TxSnapshot
	// server is when the server was started that answered the last heartbeat. seen is a snapshot of
	// that server. A session of a former primary may still answer claims.
	server time.Time
	// published are the last published versions of aggregates. Relays that saw an event
	// behind such a version skipped the event, because the version was not published yet. So
	// the relay that published the version must claim the event.
	published versions
	// A scan that starts at scanLow is due at scanAt. scanningLow is the start of the scan that
	// is running. pausedLow is the start of the scan that is due when a topic resumes.
	scanLow, scanningLow, pausedLow queue.TxSnapshot
	scanAt                          time.Time
	// probeLow is the snapshot at which the running search for probes starts.
	probeLow queue.TxSnapshot
	// skippedTypes are the aggregate types of the events for which the scan from pausedLow is
	// needed. The relay has skipped these events, or handed them back, because their topics were
	// paused. skippedTypes is cleared together with pausedLow, when that scan is scheduled.
	skippedTypes []string
	// held are the tenants that wait for turns. The tenant with the next turn comes first. The
	// published versions of held tenants are not in the field published.
	held []*heldTenant
	// retryAt is when the first of the retries that this relay has postponed is due.
	retryAt time.Time
	// pausedTypes are the aggregate types of paused topics. aliveRelays are the other
	// relays' tokens.
	pausedTypes, aliveRelays []string
	// unknownLeasesUntil is the time until which this relay may have leases that it does not
	// know of, because it does not know whether a failed claim was committed, or because a failover has
	// undone the statement that ended a lease.
	unknownLeasesUntil time.Time
	// wakeClaims wakes the claim loop, wakeScans wakes the scan loop, and wakeTurns wakes the turn
	// loop.
	wakeClaims, wakeScans, wakeTurns chan struct{}
}

// followUp is a published version. low is a snapshot that saw no pending event behind the version.
type followUp struct {
	queue.AggregateVersion
	low    queue.TxSnapshot
	tenant string
}

// versions is a list of published versions, the oldest first.
type versions struct {
	list []followUp
	// takenLow is the earliest low of what a running claim has taken: versions, and the snapshot of the claim
	// before. metLow is a snapshot of the server that the relay has met during that claim, or empty.
	takenLow, metLow queue.TxSnapshot
	// dueAt is when the versions in list justify a claim. A claim that is made before that time
	// for another reason takes the versions along. dueAt is zero while list is empty.
	dueAt time.Time
}

func (v *versions) add(p followUp, dueAt time.Time) {
	v.list, v.dueAt = append(v.list, p), soonest(v.dueAt, dueAt)
}

// take hands over up to n versions to a claim.
func (v *versions) take(n int) []followUp {
	n = min(n, len(v.list))
	taken := v.list[:n:n]
	if v.list = v.list[n:]; len(v.list) == 0 {
		v.list, v.dueAt = nil, time.Time{}
	}
	v.takenLow = lowest(v.takenLow, taken)
	return taken
}

// giveBack ends a claim, and puts versions that the claim has taken back into list.
func (v *versions) giveBack(taken []followUp) {
	v.takenLow, v.metLow = "", ""
	if len(taken) > 0 {
		v.list, v.dueAt = append(taken, v.list...), soonest(v.dueAt, time.Now())
	}
}

// startLowsAt makes the lows of all versions as early as low, for the same reason as inFlight.startLowsAt.
func (v *versions) startLowsAt(low queue.TxSnapshot) {
	lower(v.list, low)
	if v.takenLow != "" {
		v.takenLow, v.metLow = queue.Earliest(v.takenLow, low), queue.Earliest(v.metLow, low)
	}
}

// endClaim expects the lock. It ends a claim that has taken versions from v, and gives back those in taken. Other
// events of the claim are in flight already, or even published. If the relay has met another server meanwhile, their lows
// may be of the former server, and so may be those of the versions. A claim that was sent since is left as it is: two
// claims that overlap again and again would pass the low on to each other for ever.
func (a *followUps) endClaim(v *versions, taken []followUp, f *inFlight) {
	met := v.metLow
	v.giveBack(taken)
	if met == "" {
		return
	}
	f.startLowsAt(met)
	lower(a.published.list, met)
	for _, h := range a.held {
		lower(h.published.list, met)
	}
}

func lower(list []followUp, low queue.TxSnapshot) {
	for i := range list {
		list[i].low = queue.Earliest(list[i].low, low)
	}
}

// dropExcess drops the oldest versions beyond maxFollowUps. A scan from the snapshot low finds the
// events behind the dropped versions. low is empty if no version was dropped.
func (v *versions) dropExcess() (low queue.TxSnapshot) {
	over := len(v.list) - maxFollowUps
	if over <= 0 {
		return ""
	}
	low = lowest("", v.list[:over])
	v.list = slices.Clone(v.list[over:])
	return low
}

// low returns a snapshot that saw no pending event behind any of the versions.
func (v *versions) low() queue.TxSnapshot { return lowest(v.takenLow, v.list) }

func lowest(low queue.TxSnapshot, of []followUp) queue.TxSnapshot {
	for _, p := range of {
		low = queue.Earliest(low, p.low)
	}
	return low
}

func newFollowUps() *followUps {
	return &followUps{wakeClaims: make(chan struct{}, 1), wakeScans: make(chan struct{}, 1), wakeTurns: make(chan struct{}, 1)}
}

const (
	// followUpDelay is how long an event may wait behind a published event if Settle did not see it, which
	// is rare: it was committed while Settle ran. Without the delay each published event would cause a
	// claim, and these claims would be most of a relay's cost at low load.
	followUpDelay = 20 * time.Millisecond
	// heldFollowUpDelay takes the place of followUpDelay for a held tenant. The tenant's events
	// wait in any case. With the longer delay one claim serves about a hundred versions.
	heldFollowUpDelay = 250 * time.Millisecond
	// maxFollowUps bounds a list of versions. The oldest versions beyond the bound are dropped, and
	// a scan finds the events behind the dropped versions.
	maxFollowUps = maxEvents
)

// settled notes the follow-ups of results that have been written. The batches of the results
// are still in flight. followed says that Settle saw an event behind a published one.
func (a *followUps) settled(written []*unsettled, followed bool) {
	now := time.Now()
	claimAt := now.Add(followUpDelay)
	if followed {
		claimAt = now
	}
	a.mu.Lock()
	for _, u := range written {
		a.follow(u, now, claimAt)
	}
	a.dropExcess()
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// follow expects the lock. It notes the follow-up of one result.
func (a *followUps) follow(u *unsettled, now, claimAt time.Time) {
	s := u.settlement
	low, lowBehind := u.batch.lows()
	switch {
	case s.Failure != nil && s.Failure.Park: // the aggregate waits for an operator
	case s.Failure != nil:
		a.retryAt = soonest(a.retryAt, now.Add(s.Failure.RetryIn))
	case s.Published > 0:
		if s.Published < len(s.Batch) {
			lowBehind = low
		}
		p := followUp{s.Batch[:s.Published].Last(), lowBehind, s.Batch.Tenant()}
		if h := a.heldTenant(p.tenant); h != nil {
			if claimAt.After(now) {
				claimAt = now.Add(heldFollowUpDelay)
			}
			h.follow(p, claimAt)
			return
		}
		a.published.add(p, claimAt)
	case s.Batch[0].Retry: // the batch was handed back, and ClaimRetries finds it at once
		a.retryAt = soonest(a.retryAt, now)
	case slices.Contains(a.pausedTypes, s.Batch[0].AggregateType):
		a.noteSkippedTypes(low, s.Batch[0].AggregateType)
	default:
		a.addScan(low, now)
	}
}

// dropExcess expects the lock. It drops versions beyond the bound, and schedules a scan that
// finds the events behind them.
func (a *followUps) dropExcess() {
	if low := a.published.dropExcess(); low != "" {
		a.addScan(low, time.Now())
	}
}

// toClaim is the input of a claim of new events: the snapshot of the last claim, published
// versions, the other relays' tokens, and the tenants to skip. met is the server of the last heartbeat
// before the claim. server is the server that has answered the claim.
type toClaim struct {
	seen        queue.TxSnapshot
	after       []followUp
	alive, held []string
	met, server time.Time
}

// take returns the input of a claim of new events, with up to n published versions, the oldest
// first. The caller ends the claim with claimed or giveBack. Until then the relay's low covers the events that the
// claim looks for, also if the relay meets another server and begins again from a later snapshot.
func (a *followUps) take(n int) toClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	todo := toClaim{seen: a.seen, after: a.published.take(n), alive: a.aliveRelays, held: a.heldNames(), met: a.server}
	a.published.takenLow = queue.Earliest(a.published.takenLow, a.seen)
	return todo
}

// claimed ends a claim that take has started. taken is the result of take, and seen is the snapshot
// of the claim. The events of the claim are in flight already. The claim has skipped new events of
// the held tenants, and events of the types in paused. A scan from the snapshot from finds the
// events of these types. If another server than that of the last heartbeat has answered the claim, its
// snapshot means nothing here, and the same scan finds the events that the claim should have found.
func (a *followUps) claimed(f *inFlight, seen queue.TxSnapshot, taken toClaim, from queue.TxSnapshot, paused ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTenants(taken.seen, taken.held)
	a.noteSkippedTypes(from, paused...)
	a.endClaim(&a.published, nil, f)
	if taken.server.Equal(a.server) && taken.met.Equal(a.server) {
		a.seen = seen
	} else {
		a.addScan(from, time.Now().Add(jittered(scanEvery)))
		signal(a.wakeScans)
	}
}

// hasLeft reports whether a claim may have left events that no living relay takes care of, because it
// skipped them, or because another server than that of the last heartbeat has answered it. alive are the
// relays whose leases the claim has ignored. If one of them has died or ended during the claim, this relay
// may have taken it over already, and scanned before the claim: an event with that relay's lease that was
// committed in between is seen by the claim alone.
func (a *followUps) hasLeft(c queue.Claimed, alive []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.Skipped || !c.Server.Equal(a.server) ||
		slices.ContainsFunc(alive, func(token string) bool { return !slices.Contains(a.aliveRelays, token) })
}

// relays returns the number of living relays.
func (a *followUps) relays() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.aliveRelays) + 1
}

// giveBack ends a failed claim that take has started.
func (a *followUps) giveBack(f *inFlight, after []followUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.endClaim(&a.published, after, f)
	a.dropExcess()
}

// forgetRetries clears the due time of the retries that were postponed so far. The caller is
// about to claim them.
func (a *followUps) forgetRetries() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retryAt = time.Time{}
}

// dueTimes is the input of the schedules.
type dueTimes struct {
	registered      bool
	claimAt         time.Time // when published versions justify a claim, or zero
	scanAt, retryAt time.Time // each may be zero
	held            bool      // a tenant waits for turns
	retriesWait     bool      // no retry may be claimed, because too many are on their way to the broker
}

func (a *followUps) due() dueTimes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return dueTimes{registered: a.seen != "", claimAt: a.published.dueAt, scanAt: a.scanAt, retryAt: a.retryAt, held: len(a.held) > 0}
}

// soonest returns the earlier of two times. A zero time counts as none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
