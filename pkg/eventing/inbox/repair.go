package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// repairTimeout bounds one repair.
	repairTimeout = 10 * time.Second
	// repairEvery is the least time between two repairs of an aggregate. What
	// comes meanwhile waits, and most of it is stale afterwards: a producer that
	// leaves out versions costs its owner a call a second, not one per event.
	repairEvery = time.Second
	// alarming is how many failed repairs of one gap are an error in the log.
	alarming = 10
)

var repairRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 10 * time.Second}

// repair holds d's aggregate until it has its owner's state, because d met a gap or
// has diverged. When it is released, d is stale or lost, and what waited behind it
// continues. An owner that may have been a former primary leaves d diverged: it is
// asked again, and the divergence is reported once.
func (c *Consumer) repair(ctx context.Context, d *delivery, o Outcome) {
	switch {
	case o == Gap:
		c.log.InfoContext(ctx, "gap: asking the owner", d.logAttrs()...)
	case !d.diverged:
		d.diverged = true
		c.log.ErrorContext(ctx, "read model diverged from its owner, which has lost commits: taking its state", d.logAttrs()...)
	default:
		c.log.DebugContext(ctx, "read model diverged still: asking the owner again", d.logAttrs()...)
	}
	d.gaps++
	c.hold(ctx, d, openGap, func(ctx context.Context) {
		backoff.Sleep(ctx, c.repairs.wait(d.key()), nil)
		if d.gaps > 1 { // the repair did not help: do not spin
			backoff.Sleep(ctx, repairRetry.Delay(d.gaps), nil)
		}
		for attempt := 1; ctx.Err() == nil; attempt++ {
			err := c.repairOnce(ctx, d.event())
			if err == nil {
				c.repairs.note(d.key())
				c.metrics.repaired(ctx)
				c.handler.Committed(d.key())
				return
			}
			if d.lost = errors.Is(err, ErrLost); d.lost {
				c.repairs.note(d.key())
				c.handler.Committed(d.key())
				return
			}
			if eventing.IsPermanent(err) {
				d.invalid = err
				return
			}
			c.repairFailed(ctx, d, err, attempt)
		}
	})
}

func (c *Consumer) repairOnce(ctx context.Context, e eventing.Event) (err error) {
	if !c.holds.repairers.lend(ctx) {
		return ctx.Err()
	}
	defer c.holds.repairers.giveBack()
	defer func() { err = orPanic(recover(), err) }()
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	return c.handler.Repair(ctx, e)
}

// repairFailed makes it visible, in the inbox row too, that a gap stays open.
func (c *Consumer) repairFailed(ctx context.Context, d *delivery, err error, attempt int) {
	if ctx.Err() != nil {
		return
	}
	c.metrics.repairFailed(ctx)
	pause := repairRetry.Delay(attempt)
	say := c.log.WarnContext
	if attempt >= alarming {
		say = c.log.ErrorContext
	}
	say(ctx, "gap not repaired yet", append(d.logAttrs(), "error", err, "attempt", attempt, "retry_in_ms", pause.Milliseconds())...)
	if noted := c.store.note(ctx, d, "gap: "+err.Error()); noted != nil {
		c.log.DebugContext(ctx, "gap not written down", append(d.logAttrs(), "error", noted)...)
	}
	backoff.Sleep(ctx, pause, nil)
}

// recent remembers which aggregates were repaired within the last repairEvery,
// in two generations: what the older one has is forgotten as a whole.
type recent struct {
	mu         sync.Mutex
	young, old map[string]time.Time
	turned     time.Time
}

func (r *recent) note(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.young == nil || now.Sub(r.turned) > 2*repairEvery {
		r.young, r.old, r.turned = map[string]time.Time{}, r.young, now
	}
	r.young[key] = time.Now()
}

// wait is how long the next repair of an aggregate should wait.
func (r *recent) wait(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.young[key]
	if !ok {
		last = r.old[key]
	}
	return max(0, repairEvery+rand.N(repairEvery/2)-time.Since(last))
}
