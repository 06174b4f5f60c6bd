package inbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// repairTimeout bounds one repair.
	repairTimeout = 10 * time.Second
	// repairEvery is the least time between two repairs of an aggregate: see "Order" in the
	// package doc.
	repairEvery = time.Second
	// oldGap is a time for which a gap has been open. Failed repairs after it are logged as errors, earlier ones as
	// warnings.
	oldGap = 5 * time.Minute
)

// repair handles an event d that has met a gap or has diverged. It blocks d's aggregate until the read
// model has the owner's state. Then d is stale, or the owner has lost d, and the events behind d go
// on. If the owner's answer may come from a former primary, d stays diverged, and repair asks the
// owner again. repair reports the divergence once.
func (c *Consumer) repair(ctx context.Context, d *delivery, o Outcome) {
	ctx = d.in(ctx)
	switch {
	case o == Gap:
		c.logFor(d).InfoContext(ctx, "gap: asking the owner")
	case !d.diverged:
		d.diverged = true
		c.logFor(d).ErrorContext(ctx, "read model diverged from its owner, which has lost commits: taking its state")
		c.observeDivergence(ctx, d.event())
	default:
		c.logFor(d).DebugContext(ctx, "read model diverged still: asking the owner again")
	}
	d.gaps++
	c.block(ctx, d, openGap, func(ctx context.Context) {
		wait := c.repairs.wait(d.key())
		if d.gaps > 1 { // the repair did not help: do not spin
			wait += c.options.RepairBackoff.Delay(d.gaps)
		}
		if !backoff.Sleep(ctx, wait, nil) {
			return
		}
		began, noted := time.Now(), ""
		for attempt, pause := range c.options.RepairBackoff.Attempts(ctx) {
			err := c.repairOnce(ctx, d.event())
			d.lost = errors.Is(err, ErrLost)
			switch {
			case err == nil || d.lost:
				if err == nil {
					c.metrics.repaired(ctx)
				}
				c.repairs.note(d.key())
				c.notify(ctx, consistency.PositionOf(d.event()).Unknown())
				return
			case eventing.IsPermanent(err):
				d.invalid = err
				return
			}
			c.repairFailed(ctx, d, err, attempt, time.Since(began), pause)
			noted = c.noteGap(ctx, d, err, noted)
		}
	})
}

func (c *Consumer) repairOnce(ctx context.Context, e eventing.Event) (err error) {
	if err := c.blocked.repairSlots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer c.blocked.repairSlots.Release(1)
	defer func() { err = orPanic(recover(), err) }()
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	return c.handler.Repair(ctx, e)
}

// repairFailed shows in a metric and in the log that a gap stays open. open is the time since the first attempt.
// Thousands of gaps may be open for one reason, and each is tried again and again, so most of their lines are at DEBUG.
// The lines of old gaps have a limiter of their own, because an alert looks for them.
func (c *Consumer) repairFailed(ctx context.Context, d *delivery, err error, attempt int, open, pause time.Duration) {
	if ctx.Err() != nil {
		return
	}
	c.metrics.repairFailed(ctx)
	level, lines := slog.LevelWarn, c.gapLines
	if open >= oldGap {
		level, lines = slog.LevelError, c.oldGapLines
	}
	if !lines.Allow() {
		level = slog.LevelDebug
	}
	c.logFor(d).Log(ctx, level, "gap not repaired yet", "error", err, "attempt", attempt,
		"open_ms", open.Milliseconds(), "retry_in_ms", pause.Milliseconds())
}

// noteGap writes in the inbox row why a gap stays open, and returns the text. It does nothing if the text is noted,
// which was written before, or while another gap writes. Otherwise the worker, which applies the events of all other
// aggregates, would wait for a connection behind thousands of gaps. The next attempt writes the text, then.
func (c *Consumer) noteGap(ctx context.Context, d *delivery, cause error, noted string) string {
	why := "gap: " + cause.Error()
	if why == noted || !c.blocked.noteSlot.TryAcquire(1) {
		return noted
	}
	defer c.blocked.noteSlot.Release(1)
	if err := c.store.noteError(ctx, d, why); err != nil {
		c.logFor(d).DebugContext(ctx, "gap not written down", "error", err)
		return noted
	}
	return why
}

// recentRepairs remembers when aggregates were repaired, for at least twice repairEvery.
type recentRepairs struct {
	mu    sync.Mutex
	at    map[string]time.Time
	swept time.Time
}

func newRecentRepairs() *recentRepairs { return &recentRepairs{at: map[string]time.Time{}} }

func (r *recentRepairs) note(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.at[key] = now
	if now.Sub(r.swept) > 2*repairEvery {
		maps.DeleteFunc(r.at, func(_ string, at time.Time) bool { return now.Sub(at) > 2*repairEvery })
		r.swept = now
	}
}

// wait returns how long the next repair of an aggregate should wait.
func (r *recentRepairs) wait(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, repairEvery+rand.N(repairEvery/2)-time.Since(r.at[key]))
}
