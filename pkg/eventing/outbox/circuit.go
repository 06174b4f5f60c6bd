package outbox

import (
	"maps"
	"sync"
	"time"
)

const (
	// tripAfter is how many failures in a row, with no success between them, are taken for
	// an outage of the topic rather than of some aggregates.
	tripAfter = 3
	// refusedAfter is how many different aggregates must be refused, with no success since,
	// for that to be the topic's fault. It is low because the two mistakes do not cost the
	// same. Aggregates that are parked for a fault of the topic need an operator each. A
	// topic that is paused for a fault of some aggregates resumes with the first success,
	// and a probe of any other aggregate suffices for that. One or two aggregates that
	// write alone are parked: their case looks like that of bad events.
	refusedAfter = 3
	// maxRemembered bounds how many refused aggregates a circuit remembers. Beyond it,
	// bad aggregates can pause the topic once more.
	maxRemembered = 10_000
)

// Causes of a pause, as log and metric name them.
const (
	causeOutage   = "outage"
	causeRefusals = "refusals"
)

// circuit is the circuit breaker of one topic. While the topic is out, it stops everything
// but probes, which wait for a capped, jittered backoff. After an outage a probe is one
// event. While the topic refuses events, each probe has four times as many events as the
// one before, each of another aggregate and in a request of its own: a refusal costs the
// broker nothing, and one success among them tells bad events from a bad topic. The circuit
// also decides whether a refusal is about the event or about the topic.
type circuit struct {
	topic string
	types []string // the aggregate types that go there

	mu sync.Mutex
	// state counts the changes between closed and open: it is odd while the circuit is
	// open. A probe carries the state that it was sent in. In another state its
	// failure says nothing.
	state         int
	outagesInARow int       // since the last answer
	trips         int       // since the last success
	retryAt       time.Time // zero: closed
	since         time.Time // open since
	cause         string    // of the last trip
	probesOut     int       // probes without a result
	scan          probeScan // used by the probing goroutine only
	// refused are the aggregates that were refused since the last success. From
	// refusedAfter on, no refusal counts against an event, not even after a pause that
	// ended because there was nothing to probe with.
	refused map[string]bool
	// knownBad are the aggregates that were refused before a success of another aggregate.
	// The topic was well then, so their refusals say nothing about it.
	knownBad map[string]bool
}

// newCircuits returns a circuit for each topic, by aggregate type.
func newCircuits(topics map[string]string) map[string]*circuit {
	byTopic, byType := map[string]*circuit{}, map[string]*circuit{}
	for kind, topic := range topics {
		c := byTopic[topic]
		if c == nil {
			c = &circuit{topic: topic, refused: map[string]bool{}, knownBad: map[string]bool{}}
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
	return c.isOpen()
}

// isOpen expects the lock.
func (c *circuit) isOpen() bool { return !c.retryAt.IsZero() }

// admits reports whether a batch may be sent: a probe of that state, or with 0 any other
// batch.
func (c *circuit) admits(probe int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isOpen() || probe == c.state
}

// isLate expects the lock. It reports whether the circuit has changed its state since the
// probe was chosen.
func (c *circuit) isLate(probe int) bool { return probe != 0 && probe != c.state }

// failed counts an outage that a batch met: a probe of that state, or with 0 another batch.
// It returns how long the batch's aggregate waits. tripped says that the topic is paused
// from now on.
func (c *circuit) failed(err error, probe int) (wait time.Duration, tripped bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isLate(probe) {
		return outagePause.Delay(c.outagesInARow + 1), false
	}
	c.outagesInARow++
	wait = outagePause.Delay(c.outagesInARow)
	if c.isOpen() {
		return wait, probe != 0 && c.probeFailed(causeOutage)
	}
	if c.outagesInARow < tripAfter && !isTopicFault(err) {
		return wait, false
	}
	c.trip(causeOutage)
	return wait, true
}

// verdict is the circuit's decision about a refusal.
type verdict struct {
	// onEvent says that the event is at fault and spends an attempt. Otherwise it waits, as
	// in an outage.
	onEvent bool
	wait    time.Duration
	// tripped says that the topic is paused from now on, or that its probe shows that it
	// still is.
	tripped bool
}

// refusal counts a refused event of the aggregate: of a probe of that state, or with 0 of
// another batch.
func (c *circuit) refusal(aggregate string, probe int) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.isLate(probe):
	case c.isOpen():
		return verdict{wait: outagePause.Delay(c.trips + 1)}
	default: // another probe has succeeded meanwhile
		c.knownBad[aggregate] = true
		return verdict{}
	}
	if !c.knownBad[aggregate] && len(c.refused) < maxRemembered {
		c.refused[aggregate] = true
	}
	wait := outagePause.Delay(c.trips + 1)
	switch {
	case len(c.refused) < refusedAfter:
		// The outage, if there was one, is over. A probe spends no attempt: it was sent
		// to test the topic.
		return verdict{onEvent: !c.close()}
	case c.isOpen():
		return verdict{wait: wait, tripped: probe != 0 && c.probeFailed(causeRefusals)}
	default:
		c.trip(causeRefusals)
		return verdict{wait: wait, tripped: true}
	}
}

// trip expects the lock.
func (c *circuit) trip(cause string) {
	now := time.Now()
	if !c.isOpen() {
		c.since = now
		c.state++
	}
	c.trips++
	c.cause = cause
	c.retryAt = now.Add(outagePause.Delay(c.trips))
}

// succeeded notes that the broker took an event of the aggregate, which closes the circuit.
// It reports whether the circuit was open.
func (c *circuit) succeeded(aggregate string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.knownBad)+len(c.refused) > maxRemembered {
		clear(c.knownBad)
	}
	maps.Copy(c.knownBad, c.refused)
	delete(c.knownBad, aggregate)
	clear(c.refused)
	return c.close()
}

// closeIdle closes the circuit, if it is in that state, because no event waits for the
// topic. It reports whether the circuit was open. The next refusal or outage opens it
// again.
func (c *circuit) closeIdle(state int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == state && c.close()
}

// close expects the lock. It reports whether the circuit was open.
func (c *circuit) close() bool {
	wasOpen := c.isOpen()
	if wasOpen {
		c.state++
	}
	c.outagesInARow, c.trips, c.retryAt, c.probesOut = 0, 0, time.Time{}, 0
	return wasOpen
}

// forget forgets a parked aggregate: its next refusal is a new case.
func (c *circuit) forget(aggregate string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.knownBad, aggregate)
}

// failures is how many times in a row the topic was found to be out.
func (c *circuit) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}

// pause is the reason why the topic is paused, and since when. since is zero while it is
// not.
func (c *circuit) pause() (cause string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOpen() {
		return "", time.Time{}
	}
	return c.cause, c.since
}
