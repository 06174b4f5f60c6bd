package inbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing"
)

const (
	// maxAttempts is how often an event may fail by its own fault before it
	// goes to the dead letters.
	maxAttempts = 5
	// maxHeld bounds what waits in memory, so that as much again can flow.
	maxHeld = maxOutstandingMessages / 2
	// handsAtOnce bounds the load on an owner that has much to repair, and on
	// the topic of the dead letters.
	handsAtOnce = 16
	// repairTimeout bounds one repair.
	repairTimeout = 10 * time.Second
	// alarming is how many failed repairs of one gap are an error in the log.
	alarming = 10
)

var (
	repairRetry = eventing.Backoff{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
	failRetry   = eventing.Backoff{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
)

// holds keeps the aggregates that cannot go on just now: one with a gap, until
// it is repaired, or one whose event failed, until it is tried again or buried.
// Later events of a held aggregate wait behind, in memory, with their leases kept
// by the client. The worker goroutine owns the map; released is how others reach
// it.
type holds struct {
	byKey    map[string][]*delivery
	total    int
	released chan string
	hands    chan struct{}
	running  sync.WaitGroup
}

func newHolds() *holds {
	return &holds{
		byKey:    map[string][]*delivery{},
		released: make(chan string),
		hands:    make(chan struct{}, handsAtOnce),
	}
}

func (h *holds) has(key string) bool { return h.byKey[key] != nil }

// take ends the hold of an aggregate and returns what it held.
func (h *holds) take(key string) []*delivery {
	held := h.byKey[key]
	delete(h.byKey, key)
	h.total -= len(held)
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

// lend waits for one of the hands, and reports whether there was one before ctx
// ended.
func (h *holds) lend(ctx context.Context) bool {
	select {
	case h.hands <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// hold keeps d's aggregate from going on until until returns. If it is held
// already, what releases the first releases this one too. When too much is held,
// d is given back to the broker instead, after a pause.
func (c *Consumer) hold(ctx context.Context, d *delivery, until func(context.Context)) {
	h, key := c.holds, d.key()
	if h.total >= maxHeld {
		h.running.Go(func() {
			eventing.Sleep(ctx, giveBackRetry.Delay(max(1, d.attempt())), nil)
			c.giveBack(ctx, d)
		})
		return
	}
	held := h.has(key)
	h.byKey[key] = append(h.byKey[key], d)
	h.total++
	if held {
		return
	}
	h.running.Go(func() {
		until(ctx)
		select {
		case h.released <- key:
		case <-ctx.Done():
		}
	})
}

// repair holds d's aggregate until it has its owner's state, because d met a gap or
// has diverged. When it is released, d is stale or lost, and what waited behind it
// continues.
func (c *Consumer) repair(ctx context.Context, d *delivery, o Outcome) {
	if o == Diverged {
		c.log.ErrorContext(ctx, "read model diverged from its owner, which has lost commits: taking its state", d.logAttrs()...)
	} else {
		c.log.InfoContext(ctx, "gap: asking the owner", d.logAttrs()...)
	}
	d.gaps++
	c.hold(ctx, d, func(ctx context.Context) {
		c.metrics.gap(1)
		defer c.metrics.gap(-1)
		if d.gaps > 1 { // the repair did not help: do not spin
			eventing.Sleep(ctx, repairRetry.Delay(d.gaps), nil)
		}
		for attempt := 1; ctx.Err() == nil; attempt++ {
			err := c.repairOnce(ctx, d.event())
			if err == nil {
				c.metrics.repaired(ctx)
				c.handler.Committed(d.key())
				return
			}
			if d.lost = errors.Is(err, ErrLost); d.lost {
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
	if !c.holds.lend(ctx) {
		return ctx.Err()
	}
	defer func() { <-c.holds.hands }()
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
	eventing.Sleep(ctx, pause, nil)
}

// fail counts an event's own failure: it is tried again later, alone, or goes to
// the dead letters. It returns d when ctx ended before either.
func (c *Consumer) fail(ctx context.Context, d *delivery, cause error, class fault) []*delivery {
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
	c.hold(ctx, d, func(ctx context.Context) { eventing.Sleep(ctx, pause, nil) })
	return nil
}
