package inbox

import (
	"context"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing"
)

const (
	// maxAttempts is how often an event may fail by its own fault before it
	// goes to the dead letters.
	maxAttempts = 5
	// repairsAtOnce bounds the load on an owner that has much to repair.
	repairsAtOnce = 8
	// repairTimeout bounds one repair.
	repairTimeout = 10 * time.Second
)

var (
	repairRetry = eventing.Backoff{Base: 200 * time.Millisecond, Cap: 10 * time.Second}
	failRetry   = eventing.Backoff{Base: 200 * time.Millisecond, Cap: 5 * time.Second}
)

// holds keeps the aggregates that cannot go on just now: one with a gap, until
// it is repaired, or one whose event failed, until it is tried again. Later
// events of a held aggregate wait behind, in memory, with their leases kept by
// the client; its flow control bounds how many there can be. The worker
// goroutine owns the map; released is how others reach it.
type holds struct {
	byKey    map[string][]*delivery
	released chan string
	repairs  chan struct{}
	running  sync.WaitGroup
}

func newHolds() *holds {
	return &holds{
		byKey:    map[string][]*delivery{},
		released: make(chan string),
		repairs:  make(chan struct{}, repairsAtOnce),
	}
}

// join puts d behind its aggregate's hold. It reports false when there is none.
func (h *holds) join(d *delivery) bool {
	held, ok := h.byKey[d.event.Key()]
	if ok {
		h.byKey[d.event.Key()] = append(held, d)
	}
	return ok
}

// begin holds d's aggregate until until returns, or ctx ends.
func (h *holds) begin(ctx context.Context, d *delivery, until func(context.Context)) {
	if h.join(d) {
		return // what releases the first releases this one too
	}
	key := d.event.Key()
	h.byKey[key] = []*delivery{d}
	h.running.Go(func() {
		until(ctx)
		select {
		case h.released <- key:
		case <-ctx.Done():
		}
	})
}

// take ends the hold of an aggregate and returns what it held.
func (h *holds) take(key string) []*delivery {
	held := h.byKey[key]
	delete(h.byKey, key)
	return held
}

// nackAll gives everything back; ctx has ended.
func (h *holds) nackAll() {
	h.running.Wait()
	for key := range h.byKey {
		for _, d := range h.take(key) {
			d.nack()
		}
	}
}

// repair holds d's aggregate until its owner has filled the gap. When it is
// released, d is stale and what waited behind it continues.
func (c *Consumer) repair(ctx context.Context, d *delivery) {
	c.log.InfoContext(ctx, "gap: asking the owner", d.logAttrs()...)
	c.holds.begin(ctx, d, func(ctx context.Context) {
		c.metrics.held(1)
		defer c.metrics.held(-1)
		for attempt := 1; ctx.Err() == nil; attempt++ {
			err := c.repairOnce(ctx, d.event)
			if err == nil {
				c.metrics.repaired(ctx)
				c.handler.Committed(d.event.Key())
				return
			}
			if eventing.IsPermanent(err) {
				d.invalid = err
				return
			}
			pause := repairRetry.Delay(attempt)
			c.log.WarnContext(ctx, "gap not repaired yet", append(d.logAttrs(),
				"error", err, "attempt", attempt, "retry_in_ms", pause.Milliseconds())...)
			eventing.Sleep(ctx, pause, nil)
		}
	})
}

func (c *Consumer) repairOnce(ctx context.Context, e eventing.Event) error {
	select {
	case c.holds.repairs <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.holds.repairs }()
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	return c.handler.Repair(ctx, e)
}

// fail counts an event's own failure: it is tried again later, alone, or goes to
// the dead letters. It returns d when ctx ended before either.
func (c *Consumer) fail(ctx context.Context, d *delivery, cause error) []*delivery {
	attempts, err := c.store.attempt(ctx, d, cause)
	if err != nil {
		// The database went away just now. The failure is not counted, and will
		// show itself again.
		c.log.WarnContext(ctx, "attempt not counted", append(d.logAttrs(), "error", err)...)
		attempts = 1
	}
	if ctx.Err() != nil {
		return []*delivery{d}
	}
	if attempts >= maxAttempts || eventing.IsPermanent(cause) {
		c.bury(ctx, d, cause, attempts)
		return nil
	}
	pause := failRetry.Delay(attempts)
	c.log.WarnContext(ctx, "event failed, trying again", append(d.logAttrs(),
		"error", cause, "attempt", attempts, "retry_in_ms", pause.Milliseconds())...)
	c.holds.begin(ctx, d, func(ctx context.Context) { eventing.Sleep(ctx, pause, nil) })
	return nil
}
