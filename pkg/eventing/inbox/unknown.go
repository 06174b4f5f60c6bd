package inbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrUnknown is for Decode: the event is of a type, or has a version of its schema, that
// this build does not know. The event may be poison, or the build may be older than its
// producer's.
var ErrUnknown = errors.New("this build does not know it")

const (
	// unknownTime is how long an unknown event waits for others like it.
	unknownTime = 10 * time.Second
	// maxUnknown aggregates with unknown events are the build's fault.
	maxUnknown = 10
	// If so many known events are handled for each aggregate with an unknown one, the build
	// is right for the stream.
	knownPerUnknown = 10
)

// unknowns are the aggregates whose next event this build does not know. If they are few, the
// events are poison. If they are many, and few known events succeed, the consumer was deployed
// after its producer: then the events must not become dead letters.
type unknowns struct {
	mu      sync.Mutex
	keys    map[string]struct{}
	handled int64
	// handledAtFirst is the count of handled events when the first of keys came.
	handledAtFirst int64
	changed        chan struct{}
	warnedAt       time.Time
}

func newUnknowns() *unknowns {
	return &unknowns{keys: map[string]struct{}{}, changed: make(chan struct{})}
}

// enter adds an aggregate and returns the count of events handled so far.
func (u *unknowns) enter(key string) int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) == 0 {
		u.handledAtFirst = u.handled
	}
	u.keys[key] = struct{}{}
	return u.handled
}

func (u *unknowns) leave(key string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.keys, key)
}

// success counts n events that were handled.
func (u *unknowns) success(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.handled += int64(n)
	if len(u.keys) > 0 && u.outnumbered(u.handledAtFirst) {
		close(u.changed)
		u.changed = make(chan struct{})
	}
}

func (u *unknowns) outnumbered(since int64) bool {
	return u.handled-since >= knownPerUnknown*int64(len(u.keys))
}

// poison reports whether an unknown event is at fault. since is the count of handled events
// when it came, and late says that its waiting time is over. It is at fault if known events
// have outnumbered unknown ones since, or if it is late and one of few. If not, changed is
// closed when that may have changed.
func (u *unknowns) poison(since int64, late bool) (is bool, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.outnumbered(since) || late && len(u.keys) < maxUnknown, u.changed
}

// warnDue reports whether it is time to log that this build seems to be wrong.
func (u *unknowns) warnDue() (aggregates int, now bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) < maxUnknown || time.Since(u.warnedAt) < unknownTime {
		return 0, false
	}
	u.warnedAt = time.Now()
	return len(u.keys), true
}

// awaitVerdict blocks d's aggregate until it is clear that d is poison. If the build is
// wrong, that never happens: nothing is dead-lettered, and when the process ends the
// messages go back to the broker for the next build.
func (c *Consumer) awaitVerdict(ctx context.Context, d *delivery) {
	c.block(ctx, d, unknownEvent, func(ctx context.Context) {
		since := c.unknown.enter(d.key())
		defer c.unknown.leave(d.key())
		wait := time.NewTicker(unknownTime)
		defer wait.Stop()
		for late := false; ; {
			is, changed := c.unknown.poison(since, late)
			if is {
				d.poison = true
				return
			}
			if n, now := c.unknown.warnDue(); now {
				c.logFor(d).ErrorContext(d.in(ctx), "events that this build does not know, of many aggregates: "+
					"held, not dead-lettered, until a newer build comes", "error", d.invalid, "aggregates", n)
			}
			select {
			case <-changed:
			case <-wait.C:
				late = true
			case <-ctx.Done():
				return
			}
		}
	})
}
