package outbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// registration is the relay's row in the table of relays.
type registration struct {
	mu   sync.Mutex
	last queue.HeartbeatResult // of the last answered heartbeat
}

// register writes the relay's row into the table of relays. The relay registers before its first
// claim.
func (r *Relay) register(ctx context.Context, s *claimSchedule) {
	if err := r.writeHeartbeat(ctx, false); err != nil {
		r.claimFailed(ctx, s, err)
		return
	}
	s.succeeded()
	r.failures.Store(0)
}

// heartbeatLoop updates the relay's row in the table of relays until ctx ends. The same statement
// takes over the rows of dead relays. It is cancelled when flying ends, and not when ctx ends,
// because a cancelled heartbeat may still commit after deregister.
func (r *Relay) heartbeatLoop(ctx, flying context.Context) {
	for backoff.Sleep(ctx, jittered(queue.HeartbeatEvery), nil) {
		if !r.followUps.due().registered {
			continue
		}
		if err := r.writeHeartbeat(flying, false); err != nil {
			r.log.WarnContext(ctx, "relay cannot show that it is alive: others may look for its events", "error", err)
		}
	}
}

func (r *Relay) writeHeartbeat(ctx context.Context, ended bool) error {
	r.registration.mu.Lock()
	defer r.registration.mu.Unlock()
	low := r.followUps.low(r.inFlight)
	b, err := r.queue.Heartbeat(ctx, r.token, low, r.tenants.lastActive(time.Now()), r.registration.last, ended)
	if err != nil {
		return err
	}
	restart := low == "" || !b.Server.Equal(r.registration.last.Server)
	r.registration.last = b
	r.clock.Store(&b.Clock)
	r.followUps.heartbeatWritten(b, restart, r.inFlight)
	for _, tenant := range b.Tenants {
		r.tenants.meet(tenant, time.Now())
	}
	return nil
}

// deregister writes into the relay's row that the relay has ended. Otherwise the other relays
// would notice the end only after some missed heartbeats.
func (r *Relay) deregister(closing context.Context) {
	if !r.followUps.due().registered || closing.Err() != nil {
		return
	}
	if err := r.writeHeartbeat(closing, true); err != nil {
		r.log.WarnContext(closing, "relay cannot say that it has ended: others will find out", "error", err)
	}
}

// low returns the relay's low watermark, a snapshot that saw none of the unfinished events. The
// unfinished events are in the lists of followUps and in the batches in flight. low reads the lists
// and the batches in one critical section. While the lists are locked, a batch that is to move into
// a list stays in flight. If a version has left a list, the events that were claimed behind the
// version are in flight already. Two separate reads could miss a batch that moves twice between the
// reads.
func (a *followUps) low(f *inFlight) queue.TxSnapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	low := queue.Earliest(a.seen, a.published.low(), a.scanLow, a.scanningLow, a.pausedLow, a.probeLow, f.low())
	for _, h := range a.held {
		low = queue.Earliest(low, h.lowest())
	}
	return low
}

// heartbeatWritten records the answer b to a heartbeat. If the relay has inherited events of dead relays
// or of no relay, it scans for them. restart says that the relay's row is new, or that the database's
// server has changed since the heartbeat before. Then the scan begins at the relay's own low, too. Events
// in flight that the relay has met since the server changed have lows of the former server, so b.Low takes
// their place. The same is done for the lows of published versions, behind which such events may follow.
func (a *followUps) heartbeatWritten(b queue.HeartbeatResult, restart bool, f *inFlight) {
	a.mu.Lock()
	a.aliveRelays, a.server = b.Alive, b.Server
	from := b.Inherited
	if restart && a.seen != "" {
		a.expectUnknownLeases()
		f.startLowsAt(b.Low)
		a.published.startLowsAt(b.Low)
		for _, h := range a.held {
			h.published.startLowsAt(b.Low)
		}
	}
	if restart {
		a.seen, from = b.Seen, b.Low
	}
	if from != "" {
		a.addScan(from, time.Now())
	}
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// scheduleScan schedules a scan of the rows that the snapshot from did not see. The scan is due at
// the time at.
func (a *followUps) scheduleScan(from queue.TxSnapshot, at time.Time) {
	a.mu.Lock()
	a.addScan(from, at)
	a.mu.Unlock()
	signal(a.wakeScans)
}

// addScan expects the lock. If a scan is scheduled already, the two become one scan, which begins
// at the earlier snapshot and is due at the earlier time.
func (a *followUps) addScan(from queue.TxSnapshot, at time.Time) {
	a.scanLow, a.scanAt = queue.Earliest(a.scanLow, from), soonest(a.scanAt, at)
}

// beginScan begins the scan that is due, and returns the snapshot at which it starts.
func (a *followUps) beginScan() queue.TxSnapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanningLow, a.scanLow, a.scanAt = a.scanLow, "", time.Time{}
	return a.scanningLow
}

// pageScanned notes the types and the tenants that a page of the scan has skipped. part is the
// part of the table that the page has read.
func (a *followUps) pageScanned(part queue.Cursor, paused, held []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTypes(a.scanningLow, paused...)
	a.noteSkippedPart(part, held)
}

// endScan notes that a scan is complete.
func (a *followUps) endScan() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanningLow = ""
}

// setProbeLow notes the snapshot from, at which a search for probes starts. from is empty when the
// search has ended, because the candidates that the search found are in flight by then.
func (a *followUps) setProbeLow(from queue.TxSnapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.probeLow = from
}

// topicResumed schedules a scan of the events that claims have skipped because a topic
// was paused.
func (a *followUps) topicResumed() {
	a.mu.Lock()
	a.schedulePausedScan()
	a.pausedTypes = nil // the next step of the claim loop sets the types that are still paused
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// schedulePausedScan expects the lock. It schedules a scan of the events of skipped types.
func (a *followUps) schedulePausedScan() {
	if a.pausedLow != "" {
		a.addScan(a.pausedLow, time.Now())
	}
	a.pausedLow, a.skippedTypes = "", nil
}

// noteSkippedTypes expects the lock. It notes that the relay has skipped events of the types in
// paused. A scan finds these events if it begins at the snapshot that is the argument from.
func (a *followUps) noteSkippedTypes(from queue.TxSnapshot, paused ...string) {
	if len(paused) == 0 {
		return
	}
	a.pausedLow = queue.Earliest(a.pausedLow, from)
	for _, kind := range paused {
		if !slices.Contains(a.skippedTypes, kind) {
			a.skippedTypes = append(a.skippedTypes, kind)
		}
	}
}

// setPausedTypes records the types of paused topics. A topic may resume during a claim that
// skips its type. Then topicResumed runs before the claim's noteSkippedTypes, and schedules no
// scan for the type. So setPausedTypes schedules a scan if a skipped type is no longer paused.
func (a *followUps) setPausedTypes(paused []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pausedTypes = paused
	if slices.ContainsFunc(a.skippedTypes, func(kind string) bool { return !slices.Contains(paused, kind) }) {
		a.schedulePausedScan()
		signal(a.wakeScans)
	}
}

// exclusions returns the types and the tenants that a scan must skip, and the tokens of the other
// living relays. A scan can ignore the leases of these relays, because each relay takes care of
// its own leases.
func (a *followUps) exclusions() (paused, alive, held []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedTypes, a.aliveRelays, a.heldNames()
}

// noteUnknownLeases notes that a statement that writes leases has failed. The statement may have
// been committed nevertheless.
func (a *followUps) noteUnknownLeases() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expectUnknownLeases()
}

// expectUnknownLeases expects the lock. A lease that the relay does not know of is over after that time.
func (a *followUps) expectUnknownLeases() {
	a.unknownLeasesUntil = time.Now().Add(queue.LeaseTime + queue.Timeout)
}

func (a *followUps) mayHaveUnknownLeases() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.unknownLeasesUntil)
}
