package inbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrUnknown is returned by Decode if this build does not know the event's type, or the version
// of its schema. Either the event is poison, which no build can read, or this build is older than
// the producer's build.
var ErrUnknown = errors.New("this build does not know it")

const (
	// unknownTime is how long an unknown event waits for unknown events of other aggregates, before
	// it may count as poison.
	unknownTime = 10 * time.Second
	// holdTurn is the longest time that an unknown event waits for its turn to write its inbox row
	// (holdLater). A thousand events take about that time if the database is sound.
	holdTurn = time.Second
	// maxUnknown is a number of aggregates. If that many have unknown events, the build counts as at fault,
	// unless knownPerUnknown shows that it is not.
	maxUnknown = 10
	// knownPerUnknown is how many known events must be handled for each aggregate with an unknown
	// event, to show that the build is right for the stream.
	knownPerUnknown = 10
)

// unknowns is the set of aggregates whose next event this build does not know. If there are few
// such aggregates, their events are poison. If there are many, and few known events succeed, the
// producer was deployed before the consumer. In that case the events must not become dead letters.
type unknowns struct {
	mu      sync.Mutex
	keys    map[string]struct{}
	handled int64
	// handledAtFirst is the value of handled when the first aggregate entered keys.
	handledAtFirst int64
	changed        chan struct{}
	warnedAt       time.Time
}

func newUnknowns() *unknowns {
	return &unknowns{keys: map[string]struct{}{}, changed: make(chan struct{})}
}

// enter adds an aggregate, and returns how many known events were handled so far.
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

// poison reports whether an unknown event is at fault. since is the result of enter for the event.
// late says that the event has waited for unknownTime. The event is at fault if enough known events
// were handled after it came (knownPerUnknown). The event is also at fault if it is late and fewer
// than maxUnknown aggregates have unknown events. Otherwise the caller asks again when changed is
// closed, or when the event is late.
func (u *unknowns) poison(since int64, late bool) (is bool, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.outnumbered(since) || late && len(u.keys) < maxUnknown, u.changed
}

// warnDue reports whether the log needs a line now that this build seems to be too old. There is at most
// one such line in unknownTime. aggregates is the number of aggregates with unknown events.
func (u *unknowns) warnDue() (aggregates int, now bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.keys) < maxUnknown || time.Since(u.warnedAt) < unknownTime {
		return 0, false
	}
	u.warnedAt = time.Now()
	return len(u.keys), true
}

// holdLater tries again to write the inbox row of an unknown event, which may wait for hours. done says
// that another instance has applied the event. The tries of all events take turns, so that thousands of
// them leave the connections to other statements while the database is slow. An event waits for its turn
// for holdTurn at most, because awaitVerdict then has to look for the event's verdict.
func (c *Consumer) holdLater(ctx context.Context, d *delivery) (done bool) {
	if d.held {
		return false
	}
	turn, cancel := context.WithTimeout(ctx, holdTurn)
	defer cancel()
	if c.blocked.holdSlot.Acquire(turn, 1) != nil {
		return false
	}
	defer c.blocked.holdSlot.Release(1)
	return c.hold(ctx, ErrUnknown.Error(), d)[d]
}

// awaitVerdict blocks d's aggregate until d is found to be poison. If the build is too old, that
// never happens. Then nothing is dead-lettered, and when the process ends, the messages go back
// to the broker for the next build.
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
				if is, _ := c.unknown.poison(since, late); !is && c.holdLater(ctx, d) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
}
