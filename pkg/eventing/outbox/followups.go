package outbox

import (
	"slices"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// followUps is the work that one goroutine of a relay leaves for another: claims, scans
// and retries with their times. It also has what the relay's low watermark needs
// (see low): the snapshot from which another relay must scan if this one dies.
//
// All unfinished work is in one of these lists or in flight. Work that moves from a
// list to the batches in flight is added there before it is removed here, and the
// other way round. The lock of followUps is taken before the lock of inFlight.
type followUps struct {
	mu sync.Mutex
	// seen is the snapshot of the last claim: new events are those committed since.
	// It is empty until the relay has its row in the table of relays.
	seen queue.TxSnapshot
	// published are the last published versions of aggregates. Each relay that saw the
	// events behind them passed these over, because their predecessors were not
	// published yet. So the relay that published the predecessors must claim them.
	published versions
	// A scan from scanLow is due at scanAt. scanningLow is the start of the scan that
	// is running. pausedLow is the start of a scan that waits until a topic takes
	// events again.
	scanLow, scanningLow, pausedLow queue.TxSnapshot
	scanAt                          time.Time
	// probeLow is the start of a running search for probes.
	probeLow queue.TxSnapshot
	// skippedTypes are the aggregate types that claims have skipped since pausedLow.
	skippedTypes []string
	// held are the tenants that wait for turns, the next one first. Their published versions
	// are not in published.
	held []*heldTenant
	// retryAt is when the first of the retries that this relay has postponed is due.
	retryAt time.Time
	// pausedTypes are the aggregate types of paused topics. aliveRelays are the other
	// relays' tokens.
	pausedTypes, aliveRelays []string
	// unknownLeasesUntil is when the last lease ends that this relay may have without
	// knowing it: a failed claim may have been committed.
	unknownLeasesUntil time.Time
	// wakeClaims wakes the claim loop, wakeScans the scan loop, wakeTurns the loop of turns.
	wakeClaims, wakeScans, wakeTurns chan struct{}
}

// followUp is a published version. low saw no pending event behind it.
type followUp struct {
	queue.AggregateVersion
	low    queue.TxSnapshot
	tenant string
}

// versions are published versions, the oldest first.
type versions struct {
	list []followUp
	// takenLow is the low of those that a claim on its way has taken.
	takenLow queue.TxSnapshot
	// dueAt is when they are worth a claim of their own. Before that, they go along with any
	// claim that is made. It is zero while there are none.
	dueAt time.Time
}

func (v *versions) add(p followUp, dueAt time.Time) {
	v.list, v.dueAt = append(v.list, p), soonest(v.dueAt, dueAt)
}

// take hands over up to n of them to a claim.
func (v *versions) take(n int) []followUp {
	n = min(n, len(v.list))
	taken := v.list[:n:n]
	if v.list = v.list[n:]; len(v.list) == 0 {
		v.list, v.dueAt = nil, time.Time{}
	}
	v.takenLow = lowest(v.takenLow, taken)
	return taken
}

// giveBack ends a claim that has failed.
func (v *versions) giveBack(taken []followUp) {
	v.takenLow = ""
	if v.list = append(taken, v.list...); len(v.list) > 0 {
		v.dueAt = soonest(v.dueAt, time.Now())
	}
}

// dropExcess drops the oldest ones beyond the bound. A scan from low finds the events behind
// them; it is empty if there are none.
func (v *versions) dropExcess() (low queue.TxSnapshot) {
	over := len(v.list) - maxFollowUps
	if over <= 0 {
		return ""
	}
	low = lowest("", v.list[:over])
	v.list = slices.Clone(v.list[over:])
	return low
}

// low saw no pending event behind any of them.
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
	// followUpDelay is how long an event behind a published one may wait if Settle did
	// not see it. Such an event was committed while Settle ran, which is rare, and a
	// claim per published event would be most of a relay's cost at low load.
	followUpDelay = 20 * time.Millisecond
	// heldFollowUpDelay is that of a held tenant. Its events wait in any case, and so some
	// hundreds of its published versions share a claim.
	heldFollowUpDelay = 250 * time.Millisecond
	// maxFollowUps bounds the versions. Beyond it a scan finds the events behind them.
	maxFollowUps = maxEvents
)

// settled notes the follow-ups of results that have been written. Their batches are still
// in flight. followed says that Settle saw an event behind one of them.
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
	s, low, lowBehind := u.settlement, u.batch.low, u.batch.lowBehind
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
	case s.Batch[0].Retry: // handed back: still a retry, and due
		a.retryAt = soonest(a.retryAt, now)
	case slices.Contains(a.pausedTypes, s.Batch[0].AggregateType):
		a.noteSkippedTypes(low, s.Batch[0].AggregateType)
	default:
		a.addScan(low, now)
	}
}

// dropExcess expects the lock. It schedules a scan in place of the versions that it drops.
func (a *followUps) dropExcess() {
	if low := a.published.dropExcess(); low != "" {
		a.addScan(low, time.Now())
	}
}

// toClaim is what a claim of new events begins with: the snapshot of the last one, published
// versions, the other relays, and the tenants that it skips.
type toClaim struct {
	seen        queue.TxSnapshot
	after       []followUp
	alive, held []string
}

// take hands over up to n versions, oldest first, to a claim that ends with claimed or
// giveBack.
func (a *followUps) take(n int) toClaim {
	a.mu.Lock()
	defer a.mu.Unlock()
	return toClaim{a.seen, a.published.take(n), a.aliveRelays, a.heldNames()}
}

// claimed ends a claim that take has started: its events are in flight. The claim has
// skipped new events of the held tenants, and the paused types, whose events may be as old
// as from.
func (a *followUps) claimed(seen queue.TxSnapshot, taken toClaim, from queue.TxSnapshot, paused ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTenants(taken.seen, taken.held)
	a.noteSkippedTypes(from, paused...)
	a.seen, a.published.takenLow = seen, ""
}

// giveBack ends a claim that take has started and that failed.
func (a *followUps) giveBack(after []followUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.published.giveBack(after)
	a.dropExcess()
}

// forgetRetries forgets the retries that were postponed until now: a claim of retries is
// on its way.
func (a *followUps) forgetRetries() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retryAt = time.Time{}
}

// dueTimes is the input of the schedules.
type dueTimes struct {
	registered      bool
	claimAt         time.Time // when published versions are worth a claim, or zero
	scanAt, retryAt time.Time // or zero
	held            bool      // a tenant waits for turns
	retriesWait     bool      // for others on their way to the broker
}

func (a *followUps) due() dueTimes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return dueTimes{registered: a.seen != "", claimAt: a.published.dueAt, scanAt: a.scanAt, retryAt: a.retryAt, held: len(a.held) > 0}
}

// soonest is the earlier of two times. The zero time is none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
