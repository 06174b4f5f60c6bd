package outbox

import (
	"sync"
	"time"
)

// tripAfter is how many faults in a row, with no success between them, are taken
// for an outage of the topic rather than of some aggregates.
const tripAfter = 3

// circuit stops what goes to one topic while that is out, and probes it with one
// aggregate behind a capped, jittered backoff.
type circuit struct {
	topic string
	types []string // the aggregate types that go there

	mu      sync.Mutex
	inARow  int
	trips   int       // since the last success
	retryAt time.Time // zero: closed
	probing bool
}

// newCircuits returns a circuit for each topic, by aggregate type.
func newCircuits(topics map[string]string) map[string]*circuit {
	byTopic, byType := map[string]*circuit{}, map[string]*circuit{}
	for kind, topic := range topics {
		c := byTopic[topic]
		if c == nil {
			c = &circuit{topic: topic}
			byTopic[topic] = c
		}
		c.types = append(c.types, kind)
		byType[kind] = c
	}
	return byType
}

func (c *circuit) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.retryAt.IsZero()
}

// failed counts a fault, of a probe or of what was in flight beside it, and returns
// how long its aggregate waits. tripped says that the topic is out from now on.
func (c *circuit) failed(err error, probe bool) (wait time.Duration, tripped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inARow++
	wait = outage.Delay(c.inARow)
	closed := c.retryAt.IsZero()
	if probe && !closed || closed && (c.inARow >= tripAfter || isTopicFault(err)) {
		c.trips++
		c.probing = false
		c.retryAt = time.Now().Add(outage.Delay(c.trips))
		return wait, true
	}
	return wait, false
}

// succeeded closes the circuit and reports whether it was open.
func (c *circuit) succeeded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	wasOpen := !c.retryAt.IsZero()
	c.inARow, c.trips, c.retryAt, c.probing = 0, 0, time.Time{}, false
	return wasOpen
}

// due reports whether the caller may send one aggregate through the open
// circuit: nobody else may until that has an outcome.
func (c *circuit) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.retryAt.IsZero() || c.probing || time.Now().Before(c.retryAt) {
		return false
	}
	c.probing = true
	return true
}

// nextProbe is when to ask again whether a probe is due.
func (c *circuit) nextProbe() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probing { // its outcome is told
		return time.Now().Add(publishTimeout)
	}
	return c.retryAt
}

// later takes back a probe that was not sent: the next may be, after d.
func (c *circuit) later(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probing = false
	c.retryAt = time.Now().Add(d)
}

// failures is how often in a row the topic was found to be out.
func (c *circuit) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}
