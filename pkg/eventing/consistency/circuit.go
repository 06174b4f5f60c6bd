package consistency

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// openAfter is how many failures in a row open the circuit. One broken connection causes fewer.
	openAfter = 5
	// queueFactor is the ratio of the callers that may wait to the calls that may be under way.
	queueFactor = 16
)

// pauses sets the time until the next probe, after the circuit has opened or a probe has failed.
// That time is never less than half of Base.
var pauses = backoff.Policy{Base: 500 * time.Millisecond, Cap: 4 * time.Second}

// errOpen is the error of do if it made no call, because the circuit is open, or too many calls are
// under way and waiting.
var errOpen = errors.New("circuit is open")

// circuit is a circuit breaker. It keeps a slow or unavailable owner from taking its callers down
// with it. It bounds how many calls are under way and how many wait for their turn. After openAfter
// failures in a row it lets no call through for a while. Then it lets one call at a time through as
// a probe, until a probe succeeds.
type circuit struct {
	timeout      time.Duration
	slots, queue chan struct{}

	mu       sync.Mutex
	failures int // in a row
	trips    int // 1 for the opening, and 1 for each probe that has failed in a row since
	until    time.Time
	probing  bool
}

// newCircuit returns a closed circuit that lets atOnce calls be under way. timeout bounds each
// call, including the wait for its turn.
func newCircuit(atOnce int, timeout time.Duration) *circuit {
	return &circuit{timeout: timeout, slots: make(chan struct{}, atOnce), queue: make(chan struct{}, (queueFactor+1)*atOnce)}
}

// do runs call unless the circuit is open, and returns the error of call. failed reports whether
// that error is the owner's fault. A call that its caller cancelled or gave too little time says
// nothing about the owner.
func (c *circuit) do(ctx context.Context, call func(context.Context) error, failed func(error) bool) error {
	select {
	case c.queue <- struct{}{}:
		defer func() { <-c.queue }()
	default:
		return fmt.Errorf("%w: too many calls are waiting", errOpen)
	}
	calling, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-calling.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return ctx.Err()
		}
		return fmt.Errorf("%w: no turn in time", errOpen)
	}
	probe, err := c.admit()
	if err != nil {
		return err
	}
	settled := false
	defer func() {
		if !settled { // a probe that panics must not block the next ones for ever
			c.abstain(probe)
		}
	}()
	err = call(calling)
	settled = true
	switch {
	case ctx.Err() != nil:
		c.abstain(probe)
	case err != nil && failed(err):
		c.fail(probe)
	default:
		c.succeed()
	}
	return err
}

func (c *circuit) admit() (probe bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failures < openAfter:
		return false, nil
	case c.probing || time.Now().Before(c.until):
		return false, errOpen
	}
	c.probing = true
	return true, nil
}

// fail ignores late failures of calls that began before the circuit opened.
func (c *circuit) fail(probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	if !probe && c.failures != openAfter {
		return
	}
	c.probing = c.probing && !probe
	c.trips++
	c.until = time.Now().Add(pauses.Delay(c.trips)/2 + pauses.Base/2)
}

func (c *circuit) abstain(probe bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = c.probing && !probe
}

func (c *circuit) succeed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures, c.trips, c.probing = 0, 0, false
}
