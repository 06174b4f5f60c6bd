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
// The methods are in several files: duescans.go has those on scans, held.go and turns.go those on held tenants, heartbeat.go
// computes the low, and handover.go opens handovers.
//
// All unfinished work is either in one of these lists or in flight. Work that moves between a
// list and the batches in flight is added to its new place before it is removed from the old
// one. The lock of followUps is taken before the lock of inFlight.
type followUps struct {
	mu sync.Mutex
	// seen is the snapshot of the last claim of new events. An event is new if that snapshot did
	// not see the event. seen is empty until the relay has its row in the table of relays.
	seen queue.TxSnapshot
	// met is the server that answered the last heartbeat. seen is a snapshot of that server.
	met meeting
	// published are the last published versions of aggregates. Relays that saw an event
	// behind such a version skipped the event, because the version was not published yet. So
	// the relay that published the version must claim the event.
	published versions
	// scanLow is the snapshot from which the next scan starts, and scanAt is when that scan is due.
	scanLow queue.TxSnapshot
	scanAt  time.Time
	// scanning is the low from which the running scan started.
	scanning datedLow
	// searching is the low from which a search for probes started, while a page of that search is on its
	// way. The relay's low covers it, because the topic may resume during the page. Then skippedTypes does
	// not cover the search any more.
	searching datedLow
	// skippedTypes has the aggregate types of which the relay has skipped events, or handed them back, because their topic
	// was paused. The snapshot of a type is the start of the scan that is due when its topic resumes. Each type has a
	// snapshot of its own. With a common snapshot each resume of a topic would scan from the beginning of another topic's
	// pause.
	skippedTypes map[string]queue.TxSnapshot
	// held are the tenants that wait for turns. The tenant with the next turn comes first. The
	// published versions of held tenants are not in the field published.
	held []*heldTenant
	// retryAt is when the first of the retries that this relay has postponed is due.
	retryAt time.Time
	// pausedTypes are the aggregate types of paused topics. aliveRelays are the other
	// relays' tokens.
	pausedTypes, aliveRelays []string
	// goneRelays has the token of each relay whose process has ended, with a time. Until that time this
	// relay ignores the leases of the gone relay. After that time these leases are over in any case.
	goneRelays map[string]time.Time
	// unknownLeasesUntil is the time until which this relay may have leases that it does not know of.
	// A claim or a renewal that failed may have been committed, and a failover may have undone the
	// statement that ended a lease.
	unknownLeasesUntil time.Time
	// wakeClaims wakes the claim loop, wakeScans wakes the scan loop, and wakeTurns wakes the turn
	// loop.
	wakeClaims, wakeScans, wakeTurns chan struct{}
}

func newFollowUps() *followUps {
	return &followUps{
		skippedTypes: map[string]queue.TxSnapshot{}, goneRelays: map[string]time.Time{},
		wakeClaims: make(chan struct{}, 1), wakeScans: make(chan struct{}, 1), wakeTurns: make(chan struct{}, 1),
	}
}

const (
	// followUpDelay is the time from the mark of a published event to the claim of the events behind
	// it, if Settle saw no such event. Such an event is rare, because it was committed while Settle
	// ran. Without the delay each published event would cause a claim, and these claims would be most
	// of a relay's cost at low load.
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
func (f *followUps) settled(written []*unsettled, followed bool) {
	now := time.Now()
	claimAt := now.Add(followUpDelay)
	if followed {
		claimAt = now
	}
	f.mu.Lock()
	for _, u := range written {
		f.follow(u, now, claimAt)
	}
	f.dropExcess()
	f.mu.Unlock()
	signal(f.wakeClaims)
	signal(f.wakeScans)
}

// follow expects the lock. It notes the follow-up of one result.
func (f *followUps) follow(u *unsettled, now, claimAt time.Time) {
	s := u.settlement
	low, lowBehind := f.met.low(u.batch.low), f.met.low(u.batch.lowBehind)
	switch {
	case s.Failure != nil && s.Failure.Park: // the aggregate waits for an operator
	case s.Failure != nil:
		f.retryAt = soonest(f.retryAt, now.Add(s.Failure.RetryIn))
	case s.Published > 0:
		if s.Published < len(s.Batch) {
			lowBehind = low
		}
		p := followUp{s.Batch[:s.Published].Last(), lowBehind, s.Batch.Tenant()}
		if h := f.heldTenant(p.tenant); h != nil {
			if claimAt.After(now) {
				claimAt = now.Add(heldFollowUpDelay)
			}
			h.follow(p, claimAt)
			return
		}
		f.published.add(p, claimAt)
	case s.Batch[0].Retry && u.batch.low.life == f.met.life: // the batch was handed back, and ClaimRetries finds it at once
		f.retryAt = soonest(f.retryAt, now)
	case slices.Contains(f.pausedTypes, s.Batch[0].AggregateType):
		f.noteSkippedTypes(low, s.Batch[0].AggregateType)
	default:
		f.addScan(low, now)
	}
}

// dropExcess expects the lock. It drops versions beyond the bound, and schedules a scan that
// finds the events behind them.
func (f *followUps) dropExcess() {
	if low := f.published.dropExcess(); low != "" {
		f.addScan(low, time.Now())
	}
}

// toClaim is the input of a claim of new events. seen is the snapshot of the last claim. The claim also
// looks for the events behind the published versions in after.
type toClaim struct {
	exclusions

	seen  queue.TxSnapshot
	after []followUp
}

// take returns the input of a claim of new events that leaves out the types in paused. It has up to n
// published versions, the oldest first. The caller ends the claim with claimEnded or giveBack. Until then the
// relay's low covers the events that the claim looks for.
func (f *followUps) take(n int, paused ...string) toClaim {
	f.mu.Lock()
	defer f.mu.Unlock()
	todo := toClaim{f.present(paused), f.seen, f.published.take(n)}
	f.published.takenLow = queue.Earliest(f.published.takenLow, f.seen)
	return todo
}

// claimEnded ends a claim that take has started. taken is the result of take, and c is the answer to the
// claim. The events of the claim are in flight already. The claim has skipped new events of
// the held tenants, and events of paused types. A scan that starts at the argument from finds the
// skipped events of these types. If the claim was sent in a former life of the server, the claim's
// snapshot means nothing in the present life. Then the same scan also finds the events that the claim
// should have found.
func (f *followUps) claimEnded(c queue.Claimed, taken toClaim, from queue.TxSnapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from = f.met.low(datedLow{from, taken.life})
	f.noteSkippedTenants(f.met.low(datedLow{taken.seen, taken.life}), taken.held)
	f.noteSkippedTypes(from, taken.paused...)
	f.published.giveBack(nil)
	if f.met.life == taken.life {
		f.seen = c.Seen
	} else {
		f.addScan(from, time.Now().Add(jittered(scanEvery)))
		signal(f.wakeScans)
	}
}

// hasLeft reports whether a claim may have left events that no living relay takes care of. c shows
// whether the claim had to skip such events. alive are the relays whose leased events the claim has
// left to them. A relay in alive may have ended during the claim, and this relay may have taken over
// its row and scanned before the claim. An event with the ended relay's lease may have been committed
// between that scan and the claim. Then only the claim has seen the event.
func (f *followUps) hasLeft(c queue.Claimed, alive []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return c.Skipped ||
		slices.ContainsFunc(alive, func(token string) bool { return !slices.Contains(f.aliveRelays, token) })
}

// relays returns the number of living relays.
func (f *followUps) relays() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.aliveRelays) + 1
}

// giveBack ends a failed claim that take has started.
func (f *followUps) giveBack(taken toClaim) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published.giveBack(taken.after)
	f.dropExcess()
}

// forgetRetries clears the due time of the retries that were postponed so far. The caller is
// about to claim them.
func (f *followUps) forgetRetries() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.retryAt = time.Time{}
}

// dueTimes is the input of the schedules.
type dueTimes struct {
	registered      bool
	claimAt         time.Time // when published versions justify a claim, or zero
	scanAt, retryAt time.Time // each may be zero
	held            bool      // a tenant waits for turns
	retriesWait     bool      // no retry may be claimed, because too many are on their way to the broker
}

func (f *followUps) due() dueTimes {
	f.mu.Lock()
	defer f.mu.Unlock()
	return dueTimes{registered: f.seen != "", claimAt: f.published.dueAt, scanAt: f.scanAt, retryAt: f.retryAt, held: len(f.held) > 0}
}

// soonest returns the earlier of two times. A zero time counts as none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
