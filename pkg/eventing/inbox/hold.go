package inbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// maxAttempts is how often an event may fail by its own fault before it
	// goes to the dead letters.
	maxAttempts = 5
	// handsAtOnce bounds the load on an owner that has much to repair, and that on
	// the topic of the dead letters.
	handsAtOnce = 16
)

var (
	failRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
	// lockRetry has a high cap: each try costs the worker minLockWait.
	lockRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 30 * time.Second}
)

// reason is why an aggregate is blocked.
type reason int

const (
	openGap reason = iota
	failedEvent
	lockedRow
	unknownEvent
	deadLetter
	reasons
)

func (r reason) String() string {
	return [...]string{"gap", "failed", "locked", "unknown", "dead_letter"}[r]
}

// holds keeps the aggregates that cannot go on just now: blocked ones. The head of
// each, the event that blocks it, is always worked on, whatever else is held: it
// is repaired, tried again or buried. Later events of the aggregate wait behind,
// in memory, with their leases kept by the client. What bounds them all is the
// consumer's budget. The worker goroutine owns byKey; released is how others
// reach it.
type holds struct {
	byKey    map[string][]*delivery
	blocked  [reasons]atomic.Int64
	released chan string
	running  sync.WaitGroup
	// An owner that hangs must not keep poison from being buried.
	repairers, buriers hands
}

func newHolds() *holds {
	return &holds{
		byKey:     map[string][]*delivery{},
		released:  make(chan string),
		repairers: make(hands, handsAtOnce),
		buriers:   make(hands, handsAtOnce),
	}
}

func (h *holds) has(key string) bool { return h.byKey[key] != nil }

// take ends the hold of an aggregate and returns its messages.
func (h *holds) take(key string) []*delivery {
	held := h.byKey[key]
	delete(h.byKey, key)
	return held
}

// all takes everything; the holds' context has ended.
func (h *holds) all() (held []*delivery) {
	h.running.Wait()
	for key := range h.byKey {
		held = append(held, h.take(key)...)
	}
	return held
}

// hands bound how much goes on at once.
type hands chan struct{}

// lend waits for a hand, and reports whether there was one before ctx ended.
func (h hands) lend(ctx context.Context) bool {
	select {
	case h <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (h hands) giveBack() { <-h }

// hold keeps d's aggregate from going on until until returns. If it is held
// already, the release of the first releases this one too.
func (c *Consumer) hold(ctx context.Context, d *delivery, why reason, until func(context.Context)) {
	h, key := c.holds, d.key()
	held := h.has(key)
	h.byKey[key] = append(h.byKey[key], d)
	if held {
		return
	}
	h.running.Go(func() {
		h.blocked[why].Add(1)
		until(ctx)
		h.blocked[why].Add(-1)
		select {
		case h.released <- key:
		case <-ctx.Done():
		}
	})
}

// holdBehind queues d behind the event that blocks its aggregate.
func (c *Consumer) holdBehind(d *delivery) {
	c.holds.byKey[d.key()] = append(c.holds.byKey[d.key()], d)
}

// fail deals with an event that failed alone: it is tried again later, alone, or
// goes to the dead letters. It returns d when ctx ended before either.
func (c *Consumer) fail(ctx context.Context, d *delivery, cause error, class fault) []*delivery {
	if class == locked || class == slowness && c.slow.add(d.key(), maxSlow) {
		return c.putOff(ctx, d, cause, class)
	}
	if p, ok := errors.AsType[*panicError](cause); ok {
		c.log.ErrorContext(ctx, "handler panicked", append(d.logAttrs(), "panic", p.value, "stack", string(p.stack))...)
	}
	attempts, err := c.store.attempt(ctx, d, cause, class)
	if ctx.Err() != nil {
		return []*delivery{d}
	}
	d.begun, d.before = 0, false // it ended, and the row says so
	pause := failRetry.Delay(max(1, attempts))
	switch {
	case err != nil:
		// The database went away just now. The failure is not counted, and will
		// show itself again.
		c.log.WarnContext(ctx, "attempt not counted", append(d.logAttrs(), "error", err)...)
	case attempts >= maxAttempts, eventing.IsPermanent(cause):
		c.bury(ctx, d, cause, attempts)
		return nil
	}
	c.log.WarnContext(ctx, "event failed, trying again", append(d.logAttrs(),
		"error", cause, "class", class.String(), "attempt", attempts, "retry_in_ms", pause.Milliseconds())...)
	c.hold(ctx, d, failedEvent, func(ctx context.Context) { backoff.Sleep(ctx, pause, nil) })
	return nil
}

// putOff blocks d's aggregate for a while, without counting anything against d:
// somebody holds a lock that it needs, or everything takes too long just now.
func (c *Consumer) putOff(ctx context.Context, d *delivery, cause error, class fault) []*delivery {
	if d.begun > 0 { // it ended, and this process lives
		if err := c.store.unbegin(ctx, []*delivery{d}); err != nil {
			c.log.DebugContext(ctx, "beginning not taken back", append(d.logAttrs(), "error", err)...)
		}
		d.begun, d.before = 0, false
	}
	d.waits++
	pause := lockRetry.Delay(d.waits)
	c.log.WarnContext(ctx, "event put off, its aggregate waits", append(d.logAttrs(),
		"error", cause, "class", class.String(), "times", d.waits, "retry_in_ms", pause.Milliseconds())...)
	why := lockedRow
	if class == slowness {
		why = failedEvent
	}
	c.hold(ctx, d, why, func(ctx context.Context) { backoff.Sleep(ctx, pause, nil) })
	return nil
}
