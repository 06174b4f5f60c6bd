package outbox

import (
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// agenda is what the settling half of a relay leaves for the claiming half.
type agenda struct {
	mu sync.Mutex
	// after are positions that were published last of their aggregates. What
	// follows them was passed over by every relay that saw it, since its
	// predecessor was not published yet: whoever published that has to look.
	after []queue.Position
	// lookAt is when after is worth a claim of its own; before that it goes along
	// with one that is made anyway. Zero if after is empty.
	lookAt time.Time
	// walkAt is when something must be looked for that only a walk finds.
	walkAt time.Time
	told   chan struct{}
}

func newAgenda() *agenda { return &agenda{told: make(chan struct{}, 1)} }

// lookLater is how long what follows a published event may wait if settling did
// not see it: it was then committed while that statement ran, which is rare, and
// a claim per published event would be most of what a relay costs at low load.
const lookLater = 20 * time.Millisecond

// settled notes what to look for when outcomes have been written.
func (a *agenda) settled(outcomes []queue.Outcome, followed bool) {
	now := time.Now()
	look := now.Add(lookLater)
	if followed {
		look = now
	}
	a.mu.Lock()
	for _, o := range outcomes {
		switch {
		case o.Fault != nil && !o.Fault.Park:
			a.walkBy(now.Add(o.Fault.RetryIn))
		case o.Fault == nil && o.Published > 0:
			a.after = append(a.after, o.Run[:o.Published].Last())
			a.lookBy(look)
		}
	}
	a.mu.Unlock()
	signal(a.told)
}

// walkSoon asks for a walk at once.
func (a *agenda) walkSoon() {
	a.mu.Lock()
	a.walkBy(time.Now())
	a.mu.Unlock()
	signal(a.told)
}

// walkBy expects the lock.
func (a *agenda) walkBy(at time.Time) {
	if a.walkAt.IsZero() || at.Before(a.walkAt) {
		a.walkAt = at
	}
}

// lookBy expects the lock.
func (a *agenda) lookBy(at time.Time) {
	if a.lookAt.IsZero() || at.Before(a.lookAt) {
		a.lookAt = at
	}
}

// take hands over up to n positions, oldest first.
func (a *agenda) take(n int) []queue.Position {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, len(a.after))
	taken := a.after[:n:n]
	if a.after = a.after[n:]; len(a.after) == 0 {
		a.lookAt = time.Time{}
	}
	return taken
}

// giveBack puts positions to the end of the list.
func (a *agenda) giveBack(p []queue.Position) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.after = append(a.after, p...); len(a.after) > 0 {
		a.lookBy(time.Now())
	}
}

// waiting is how many positions there are to take, and when to; that is zero if
// there are none.
func (a *agenda) waiting() (n int, lookAt time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.after), a.lookAt
}

// walkDue is when a walk is due on account of what was settled, or zero; it is
// forgotten once that has come.
func (a *agenda) walkDue(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.walkAt
	if !at.After(now) {
		a.walkAt = time.Time{}
	}
	return at
}
