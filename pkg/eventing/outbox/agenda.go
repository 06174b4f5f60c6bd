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
type agenda struct {
	mu sync.Mutex
	// since is the last snapshot of a claim; new events are those committed since.
	// It is empty until the relay has its row in the table of relays.
	since queue.Snapshot
	// after are positions that were published last of their aggregates. The events
	// that follow them were passed over by every relay that saw them, since their
	// predecessors were not published yet: the relay that published those has to look.
	// taken is the low of the positions that a claim on its way has taken.
	after []follow
	taken queue.Snapshot
	// lookAt is when after is worth a claim of its own; before that it goes along
	// with one that is made anyway. Zero if after is empty.
	lookAt time.Time
	// owed is from where on a scan is to go at owedAt, and scanning from where on one
	// goes. paused is the same for when a topic takes events again.
	owed, scanning, paused queue.Snapshot
	owedAt                 time.Time
	// probed is from where on candidates for a probe are being claimed.
	probed queue.Snapshot
	// left are the aggregate types that were left alone since paused.
	left []string
	// retryAt is when the first of the retries that this relay has put off is due.
	retryAt time.Time
	// closed are the aggregate types of the topics that are out, alive the other relays.
	closed, alive []string
	// doubtUntil is when the last of the leases ends that this relay may have without
	// knowing: of a claim that has failed, but may have been committed.
	doubtUntil time.Time
	// told is for the claims, toldScan for the scan.
	told, toldScan chan struct{}
}

// follow is a position behind which nothing was visible to low.
type follow struct {
	queue.Position
	low queue.Snapshot
}

func newAgenda() *agenda {
	return &agenda{told: make(chan struct{}, 1), toldScan: make(chan struct{}, 1)}
}

const (
	// lookLater is how long an event behind a published one may wait if settling did
	// not see it: it was then committed while that statement ran, which is rare, and
	// a claim per published event would be most of a relay's cost at low load.
	lookLater = 20 * time.Millisecond
	// maxAfter bounds the positions. Beyond it a scan finds the events behind them.
	maxAfter = maxEvents
)

// settled notes the follow-ups of outcomes that have been written. Their holds are
// still in f.
func (a *agenda) settled(f *flight, outcomes []queue.Outcome, followed bool) {
	now := time.Now()
	look := now.Add(lookLater)
	if followed {
		look = now
	}
	a.mu.Lock()
	for _, o := range outcomes {
		low, next := f.lows(o.Run)
		switch {
		case o.Fault != nil && !o.Fault.Park:
			a.retryAt = soonest(a.retryAt, now.Add(o.Fault.RetryIn))
		case o.Fault == nil && o.Published > 0:
			if o.Published < len(o.Run) {
				next = low
			}
			a.after = append(a.after, follow{o.Run[:o.Published].Last(), next})
			a.lookAt = soonest(a.lookAt, look)
		case o.Fault == nil && o.Published == 0 && o.Run[0].Retry: // it is handed back
			a.retryAt = soonest(a.retryAt, now)
		case o.Fault == nil && slices.Contains(a.closed, o.Run[0].AggregateType):
			a.leave(low, o.Run[0].AggregateType)
		case o.Fault == nil:
			a.owe(low, now)
		}
	}
	a.bound(now)
	a.mu.Unlock()
	signal(a.told)
	signal(a.toldScan)
}

// bound drops the oldest positions beyond the bound: a scan has them instead. It
// expects the lock.
func (a *agenda) bound(now time.Time) {
	over := len(a.after) - maxAfter
	if over <= 0 {
		return
	}
	for _, p := range a.after[:over] {
		a.owe(p.low, now)
	}
	a.after = slices.Clone(a.after[over:])
}

// owe asks for a scan. It expects the lock.
func (a *agenda) owe(from queue.Snapshot, at time.Time) {
	a.owed, a.owedAt = queue.Earliest(a.owed, from), soonest(a.owedAt, at)
}

// scanFrom asks for a scan of the rows that from did not see.
func (a *agenda) scanFrom(from queue.Snapshot, at time.Time) {
	a.mu.Lock()
	a.owe(from, at)
	a.mu.Unlock()
	signal(a.toldScan)
}

// resumed asks for a scan of the events that claims have left alone because a topic
// was out.
func (a *agenda) resumed() {
	a.mu.Lock()
	a.goOn()
	a.closed = nil // the next claim finds out which still are
	a.mu.Unlock()
	signal(a.told)
	signal(a.toldScan)
}

// goOn expects the lock.
func (a *agenda) goOn() {
	if a.paused != "" {
		a.owe(a.paused, time.Now())
	}
	a.paused, a.left = "", nil
}

// leave notes that a claim has left these types alone. It expects the lock.
func (a *agenda) leave(from queue.Snapshot, closed ...string) {
	if len(closed) == 0 {
		return
	}
	a.paused = queue.Earliest(a.paused, from)
	for _, kind := range closed {
		if !slices.Contains(a.left, kind) {
			a.left = append(a.left, kind)
		}
	}
}

// outage notes which types are left alone. One that was, and is not any more, may have
// come back while a claim was on its way that left it alone: after resumed.
func (a *agenda) outage(closed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = closed
	if slices.ContainsFunc(a.left, func(kind string) bool { return !slices.Contains(closed, kind) }) {
		a.goOn()
		signal(a.toldScan)
	}
}

// take hands over up to n positions, oldest first, until taken or giveBack.
func (a *agenda) take(n int) (since queue.Snapshot, after []follow, alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, len(a.after))
	after = a.after[:n:n]
	if a.after = a.after[n:]; len(a.after) == 0 {
		a.after, a.lookAt = nil, time.Time{}
	}
	for _, p := range after {
		a.taken = queue.Earliest(a.taken, p.low)
	}
	return a.since, after, a.alive
}

// claimed ends what take began: what was claimed is in flight, and closed are the types
// that the claim has left alone, as far back as from.
func (a *agenda) claimed(seen, from queue.Snapshot, closed ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(from, closed...)
	a.since, a.taken = seen, ""
}

// giveBack puts positions back that a claim has taken and that failed.
func (a *agenda) giveBack(after []follow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = ""
	if a.after = append(after, a.after...); len(a.after) > 0 {
		a.lookAt = soonest(a.lookAt, time.Now())
	}
	a.bound(time.Now())
}

// beaten notes the new state of the relay's row in the table of relays.
func (a *agenda) beaten(b queue.Beat, own queue.Snapshot, anew bool) {
	a.mu.Lock()
	a.alive = b.Alive
	if anew {
		a.since = b.Seen
	}
	if anew || queue.Earliest(b.Low, own) != own {
		a.owe(b.Low, time.Now())
	}
	a.mu.Unlock()
	signal(a.told)
	signal(a.toldScan)
}

// beginScan hands over from where on a scan is to go.
func (a *agenda) beginScan() queue.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanning, a.owed, a.owedAt = a.owed, "", time.Time{}
	return a.scanning
}

// paged notes which types a page of the scan has left alone.
func (a *agenda) paged(closed []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(a.scanning, closed...)
}

// endScan is called when a scan is through.
func (a *agenda) endScan() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.scanning = ""
}

// probing notes from where on candidates for a probe are claimed; empty: they are in
// flight.
func (a *agenda) probing(from queue.Snapshot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.probed = from
}

// low is from where on events may be unfinished, on account of the lists and of the
// runs in flight. It is one look at both: while the lists are locked, a run in flight
// that moves into a list stays in flight, and one that has left a list is in flight.
// After three looks one by one a run may have been in neither, if it moved twice
// meanwhile.
func (a *agenda) low(f *flight) queue.Snapshot {
	a.mu.Lock()
	defer a.mu.Unlock()
	low := queue.Earliest(a.since, a.taken, a.owed, a.scanning, a.paused, a.probed, f.low())
	for _, p := range a.after {
		low = queue.Earliest(low, p.low)
	}
	return low
}

// news is the input of the schedules.
type news struct {
	joined          bool
	lookAt          time.Time // when positions are worth a claim, or zero
	owedAt, retryAt time.Time // or zero
}

func (a *agenda) news() news {
	a.mu.Lock()
	defer a.mu.Unlock()
	return news{joined: a.since != "", lookAt: a.lookAt, owedAt: a.owedAt, retryAt: a.retryAt}
}

// retrying forgets the retries that were put off until now: a look at them is on its
// way.
func (a *agenda) retrying() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.retryAt = time.Time{}
}

// doubt notes that a statement which leases has failed, and may have been committed.
func (a *agenda) doubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubtUntil = time.Now().Add(queue.LeaseTime + queue.Timeout)
}

func (a *agenda) doubting() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.doubtUntil)
}

// leaving is what a scan must not claim, and whose leases it can leave alone.
func (a *agenda) leaving() (closed, alive []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closed, a.alive
}

// soonest is the earlier of two times, of which zero is none.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
