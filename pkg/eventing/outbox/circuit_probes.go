package outbox

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// startProbe returns the state in which the caller may probe the open circuit, or 0. It
// reserves the probe: no other caller may probe until this one has a result.
func (c *circuit) startProbe() (state int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOpen() || c.probesOut > 0 || time.Now().Before(c.retryAt) {
		return 0
	}
	c.probesOut = 1
	return c.state
}

// chooseProbes returns the heads of the probes among batches, for that state. It returns
// none if a batch in flight has ended the state. It prefers aggregates that have not been
// refused.
func (c *circuit) chooseProbes(state int, batches []queue.Batch) map[uuid.UUID]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state {
		return nil
	}
	width := 1
	if c.cause == causeRefusals {
		width = 1 << min(2*(c.trips-1), 10)
	}
	var preferred, others []queue.Batch
	for _, b := range batches {
		if key := b.Key(); c.refused[key] || c.knownBad[key] {
			others = append(others, b)
		} else {
			preferred = append(preferred, b)
		}
	}
	all := slices.Concat(preferred, others)
	c.probesOut = min(width, len(all))
	probes := make(map[uuid.UUID]bool, c.probesOut)
	for _, b := range all[:c.probesOut] {
		probes[b.Head()] = true
	}
	return probes
}

// nextProbe is when to ask again whether a probe is due.
func (c *circuit) nextProbe() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probesOut > 0 { // its result wakes the probe loop
		return time.Now().Add(publishTimeout)
	}
	return c.retryAt
}

// postpone takes back a probe of that state that was not sent. If no other probe is out,
// the next one may be sent after d.
func (c *circuit) postpone(state int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state { // a batch in flight has changed it
		return
	}
	c.probesOut--
	if c.probesOut <= 0 {
		c.probesOut = 0
		c.retryAt = time.Now().Add(d)
	}
}

// probeFailed expects the lock. It notes that a probe has failed. When none is out any
// more, the topic is still out.
func (c *circuit) probeFailed(cause string) bool {
	c.probesOut--
	if c.probesOut > 0 {
		return false
	}
	c.trip(cause)
	return true
}
