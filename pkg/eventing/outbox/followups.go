package outbox

import (
	"slices"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// agenda holds the follow-up work that the parts of a relay leave for each other, and
// the snapshot from which on another relay would have to look if this one died: its low.
//
// All unfinished work is in one of its lists, or in flight. Work that moves from one
// to the other is added there before it is removed here. The agenda's lock is taken
// before the flight's.
type followUps struct {
	mu sync.Mutex
	// since is the last snapshot of a claim; new events are those committed since.
	// It is empty until the relay has its row in the table of relays.
	seen queue.TxSnapshot
	// after are positions that were published last of their aggregates. The events
	// that follow them were passed over by every relay that saw them, since their
	// predecessors were not published yet: the relay that published those has to look.
	// taken is the low of the positions that a claim on its way has taken.
	published []followUp
	takenLow  queue.TxSnapshot
	// lookAt is when after is worth a claim of its own; before that it goes along
	// with one that is made anyway. Zero if after is empty.
	claimAt time.Time
	// owed is from where on a scan is to go at owedAt, and scanning from where on one
	// goes. paused is the same for when a topic takes events again.
	scanLow, scanningLow, pausedLow queue.TxSnapshot
	scanAt                          time.Time
	// probed is from where on candidates for a probe are being claimed.
	probeLow queue.TxSnapshot
	// left are the aggregate types that were left alone since paused.
	skippedTypes []string
	// retryAt is when the first of the retries that this relay has put off is due.
	retryAt time.Time
	// closed are the aggregate types of the topics that are out, alive the other relays.
	pausedTypes, aliveRelays []string
	// doubtUntil is when the last of the leases ends that this relay may have without
	// knowing: of a claim that has failed, but may have been committed.
	unknownLeasesUntil time.Time
	// told is for the claims, toldScan for the scan.
	wakeClaims, wakeScans chan struct{}
}

// follow is a position behind which nothing was visible to low.
type followUp struct {
	queue.AggregateVersion
	low queue.TxSnapshot
}

func newFollowUps() *followUps {
	return &followUps{wakeClaims: make(chan struct{}, 1), wakeScans: make(chan struct{}, 1)}
}

const (
	// lookLater is how long an event behind a published one may wait if settling did
	// not see it: it was then committed while that statement ran, which is rare, and
	// a claim per published event would be most of a relay's cost at low load.
	followUpDelay = 20 * time.Millisecond
	// maxAfter bounds the positions. Beyond it a scan finds the events behind them.
	maxFollowUps = maxEvents
)

// settled notes the follow-ups of outcomes that have been written. Their holds are
// still in f.
func (a *followUps) settled(f *inFlight, outcomes []queue.Settlement, followed bool) {
	now := time.Now()
	look := now.Add(followUpDelay)
	if followed {
		look = now
	}
	a.mu.Lock()
	for _, o := range outcomes {
		low, next := f.lows(o.Batch)
		switch {
		case o.Failure != nil && !o.Failure.Park:
			a.retryAt = soonest(a.retryAt, now.Add(o.Failure.RetryIn))
		case o.Failure == nil && o.Published > 0:
			if o.Published < len(o.Batch) {
				next = low
			}
			a.published = append(a.published, followUp{o.Batch[:o.Published].Last(), next})
			a.claimAt = soonest(a.claimAt, look)
		case o.Failure == nil && o.Published == 0 && o.Batch[0].Retry: // it is handed back
			a.retryAt = soonest(a.retryAt, now)
		case o.Failure == nil && slices.Contains(a.pausedTypes, o.Batch[0].AggregateType):
			a.noteSkippedTypes(low, o.Batch[0].AggregateType)
		case o.Failure == nil:
			a.addScan(low, now)
		}
	}
	a.dropExcess(now)
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// bound drops the oldest positions beyond the bound: a scan has them instead. It
// expects the lock.
func (a *followUps) dropExcess(now time.Time) {
	over := len(a.published) - maxFollowUps
	if over <= 0 {
		return
	}
	for _, p := range a.published[:over] {
		a.addScan(p.low, now)
	}
	a.published = slices.Clone(a.published[over:])
}

// owe asks for a scan. It expects the lock.
func (a *followUps) addScan(from queue.TxSnapshot, at time.Time) {
	a.scanLow, a.scanAt = queue.Earliest(a.scanLow, from), soonest(a.scanAt, at)
}

// scanFrom asks for a scan of the rows that from did not see.
func (a *followUps) scheduleScan(from queue.TxSnapshot, at time.Time) {
	a.mu.Lock()
	a.addScan(from, at)
	a.mu.Unlock()
	signal(a.wakeScans)
}

// resumed asks for a scan of the events that claims have left alone because a topic
// was out.
func (a *followUps) topicResumed() {
	a.mu.Lock()
	a.schedulePausedScan()
	a.pausedTypes = nil // the next claim finds out which still are
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// goOn expects the lock.
func (a *followUps) schedulePausedScan() {
	if a.pausedLow != "" {
		a.addScan(a.pausedLow, time.Now())
	}
	a.pausedLow, a.skippedTypes = "", nil
}

// leave notes that a claim has left these types alone. It expects the lock.
func (a *followUps) noteSkippedTypes(from queue.TxSnapshot, closed ...string) {
	if len(closed) == 0 {
		return
	}
	a.pausedLow = queue.Earliest(a.pausedLow, from)
	for _, kind := range closed {
		if !slices.Contains(a.skippedTypes, kind) {
			a.skippedTypes = append(a.skippedTypes, kind)
		}
	}
}

// outage notes which types are left alone. One that was, and is not any more, may have
// come back while a claim was on its way that left it alone: after resumed.
func (a *followUps) setPausedTypes(closed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pausedTypes = closed
	if slices.ContainsFunc(a.skippedTypes, func(kind string) bool { return !slices.Contains(closed, kind) }) {
		a.schedulePausedScan()
		signal(a.wakeScans)
	}
}

// take hands over up to n positions, oldest first, until taken or giveBack.
func (a *followUps) take(n int) (since queue.TxSnapshot, after []followUp, alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, len(a.published))
	after = a.published[:n:n]
	if a.published = a.published[n:]; len(a.published) == 0 {
		a.published, a.claimAt = nil, time.Time{}
	}
	for _, p := range after {
		a.takenLow = queue.Earliest(a.takenLow, p.low)
	}
	return a.seen, after, a.aliveRelays
}

// claimed ends what take began: what was claimed is in flight, and closed are the types
// that the claim has left alone, as far back as from.
func (a *followUps) claimed(seen, from queue.TxSnapshot, closed ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTypes(from, closed...)
	a.seen, a.takenLow = seen, ""
}

// giveBack puts positions back that a claim has taken and that failed.
func (a *followUps) giveBack(after []followUp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.takenLow = ""
	if a.published = append(after, a.published...); len(a.published) > 0 {
		a.claimAt = soonest(a.claimAt, time.Now())
	}
	a.dropExcess(time.Now())
}

// beaten notes the new state of the relay's row in the table of relays.
func (a *followUps) heartbeatWritten(b queue.HeartbeatResult, own queue.TxSnapshot, anew bool) {
	a.mu.Lock()
	a.aliveRelays = b.Alive
	if anew {
		a.seen = b.Seen
	}
	if anew || queue.Earliest(b.Low, own) != own {
		a.addScan(b.Low, time.Now())
	}
	a.mu.Unlock()
	signal(a.wakeClaims)
	signal(a.wakeScans)
}

// beginScan hands over from where on a scan is to go.
func (a *followUps) beginScan() queue.TxSnapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanningLow, a.scanLow, a.scanAt = a.scanLow, "", time.Time{}
	return a.scanningLow
}

// paged notes which types a page of the scan has left alone.
func (a *followUps) pageScanned(closed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noteSkippedTypes(a.scanningLow, closed...)
}

// endScan is called when a scan is through.
func (a *followUps) endScan() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanningLow = ""
}

// probing notes from where on candidates for a probe are claimed; empty: they are in
// flight.
func (a *followUps) setProbeLow(from queue.TxSnapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.probeLow = from
}

// low is from where on events may be unfinished, on account of the lists and of the
// runs in flight. It is one look at both: while the lists are locked, a run in flight
// that moves into a list stays in flight, and one that has left a list is in flight.
// After three looks one by one a run may have been in neither, if it moved twice
// meanwhile.
func (a *followUps) low(f *inFlight) queue.TxSnapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	low := queue.Earliest(a.seen, a.takenLow, a.scanLow, a.scanningLow, a.pausedLow, a.probeLow, f.low())
	for _, p := range a.published {
		low = queue.Earliest(low, p.low)
	}
	return low
}

// news is the input of the schedules.
type dueTimes struct {
	registered      bool
	claimAt         time.Time // when positions are worth a claim, or zero
	scanAt, retryAt time.Time // or zero
}

func (a *followUps) due() dueTimes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return dueTimes{registered: a.seen != "", claimAt: a.claimAt, scanAt: a.scanAt, retryAt: a.retryAt}
}

// retrying forgets the retries that were put off until now: a look at them is on its
// way.
func (a *followUps) forgetRetries() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retryAt = time.Time{}
}

// doubt notes that a statement which leases has failed, and may have been committed.
func (a *followUps) noteUnknownLeases() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unknownLeasesUntil = time.Now().Add(queue.LeaseTime + queue.Timeout)
}

func (a *followUps) mayHaveUnknownLeases() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.unknownLeasesUntil)
}

// leaving is what a scan must not claim, and whose leases it can leave alone.
func (a *followUps) exclusions() (closed, alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.pausedTypes, a.aliveRelays
}

// soonest is the earlier of two times, of which zero is none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
