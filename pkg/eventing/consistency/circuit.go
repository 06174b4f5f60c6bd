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
	probes   int // the number of probes so far
	probing  int // the number of the probe that is under way, or 0
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

// admit returns errOpen if the circuit lets no call through now. Otherwise it returns the number of the
// call as a probe, or 0 for a call that is no probe.
func (c *circuit) admit() (probe int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failures < openAfter:
		return 0, nil
	case c.probing != 0 || time.Now().Before(c.until):
		return 0, errOpen
	}
	c.probes++
	c.probing = c.probes
	return c.probing, nil
}

// fail counts a failed call. If the failure opens the circuit, or is that of the probe, fail sets the time
// of the next probe. It ignores late failures of calls that began before the circuit opened.
func (c *circuit) fail(probe int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures++
	if !c.endProbe(probe) && c.failures != openAfter {
		return
	}
	c.trips++
	c.until = time.Now().Add(pauses.Delay(c.trips)/2 + pauses.Base/2)
}

func (c *circuit) abstain(probe int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endProbe(probe)
}

// endProbe ends the probe that is under way if that is the call with the number probe, and reports whether
// it was. If a call from before the opening succeeds during a probe, the circuit closes, and the probe
// becomes a call like others, even if the circuit opens again. The caller has locked c.mu.
func (c *circuit) endProbe(probe int) bool {
	if probe == 0 || c.probing != probe {
		return false
	}
	c.probing = 0
	return true
}

func (c *circuit) succeed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures, c.trips, c.probing = 0, 0, 0
}
