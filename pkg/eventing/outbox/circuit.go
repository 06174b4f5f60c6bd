package outbox

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// tripAfter is how many faults in a row, with no success between them, are taken
	// for an outage of the topic rather than of some aggregates.
	tripAfter = 3
	// refusedAfter is how many different aggregates have to be refused, with no
	// success since, for that to be the topic's fault. It is low because the two
	// mistakes do not cost the same: aggregates that are parked for a fault of the
	// topic need a person each, and a topic that is paused for a fault of some
	// aggregates goes on with the first success, to which a probe of any other
	// aggregate suffices. One aggregate that writes alone, or two, are parked: nothing
	// tells their case from that of bad events.
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

// circuit stops what goes to one topic while that is out, and probes it behind a
// capped, jittered backoff: with one event, and while the topic refuses events with
// four times as many each time, each of another aggregate and alone in its request. A
// refusal costs the broker nothing, and one success among them tells bad events from
// a bad topic. A circuit also tells whether a refusal is about the event or about the
// topic.
type circuit struct {
	topic string
	types []string // the aggregate types that go there

	mu sync.Mutex
	// state counts the changes between closed and open: it is odd while the circuit is
	// open. A probe carries the state that it was sent in; in another one its fault
	// says nothing.
	state         int
	outagesInARow int       // outages since the last answer
	trips         int       // since the last success
	retryAt       time.Time // zero: closed
	since         time.Time // open since
	cause         string    // of the last trip
	probesOut     int       // probes that have no outcome yet
	scan          probeScan // of the goroutine that probes alone
	// refused are the aggregates that were refused since the last success. From
	// refusedAfter on, no refusal is a verdict, also after a pause that ended
	// because there was nothing to probe with.
	refused map[string]bool
	// known are those that were refused before a success of another aggregate: the
	// topic was well, so their refusals say nothing about it.
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

// admits reports whether a run may be sent: the probe of a state, or with 0 any other.
func (c *circuit) admits(probe int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.isOpen() || probe == c.state
}

// isLate expects the lock, and reports whether the circuit has changed its state since
// the probe was chosen.
func (c *circuit) isLate(probe int) bool { return probe != 0 && probe != c.state }

// failed counts a fault, of the probe of a state or with 0 of what was in flight
// beside it, and returns how long its aggregate waits. tripped says that the topic is
// out from now on.
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

// verdict is what a circuit makes of a refusal.
type verdict struct {
	// onEvent says that the event is at fault, and spends an attempt. Else it waits,
	// as in an outage.
	onEvent bool
	wait    time.Duration
	// tripped says that the topic is out from now on, or still is, by its probe.
	tripped bool
}

// refusal counts a refused event of the aggregate, that of a state's probe or with 0
// any other.
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
		// The outage, if there was one, is over. A probe spends nothing: it was sent
		// for the topic's sake.
		return verdict{onEvent: !c.close()}
	case c.isOpen():
		return verdict{wait: wait, tripped: probe != 0 && c.probeFailed(causeRefusals)}
	default:
		c.trip(causeRefusals)
		return verdict{wait: wait, tripped: true}
	}
}

// answered expects the lock. It notes that a probe met a fault, and when none is on
// its way any more, that the topic is still out.
func (c *circuit) probeFailed(cause string) bool {
	c.probesOut--
	if c.probesOut > 0 {
		return false
	}
	c.trip(cause)
	return true
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

// succeeded notes that an event of the aggregate was taken, which closes the circuit,
// and reports whether it was open.
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

// idle closes the circuit, in a state, because there is nothing to hold up, and reports
// whether it was open. The next refusal or outage opens it again.
func (c *circuit) closeIdle(state int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == state && c.close()
}

// close expects the lock, and reports whether the circuit was open.
func (c *circuit) close() bool {
	wasOpen := c.isOpen()
	if wasOpen {
		c.state++
	}
	c.outagesInARow, c.trips, c.retryAt, c.probesOut = 0, 0, time.Time{}, 0
	return wasOpen
}

// parked forgets an aggregate: whatever is refused of it next is another matter.
func (c *circuit) forget(aggregate string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.knownBad, aggregate)
}

// due returns the state in which the caller may probe the open circuit: nobody else may
// until that has an outcome. 0: nobody may.
func (c *circuit) startProbe() (state int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOpen() || c.probesOut > 0 || time.Now().Before(c.retryAt) {
		return 0
	}
	c.probesOut = 1
	return c.state
}

// choose returns the heads of a state's next probes among runs: none if something that
// was in flight has ended that state. It prefers aggregates that have not been refused.
func (c *circuit) chooseProbes(state int, runs []queue.Batch) map[uuid.UUID]bool {
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
	for _, r := range runs {
		if key := r.Key(); c.refused[key] || c.knownBad[key] {
			others = append(others, r)
		} else {
			preferred = append(preferred, r)
		}
	}
	all := slices.Concat(preferred, others)
	c.probesOut = min(width, len(all))
	probes := make(map[uuid.UUID]bool, c.probesOut)
	for _, r := range all[:c.probesOut] {
		probes[r.Head()] = true
	}
	return probes
}

// nextProbe is when to ask again whether a probe is due.
func (c *circuit) nextProbe() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.probesOut > 0 { // its outcome is told
		return time.Now().Add(publishTimeout)
	}
	return c.retryAt
}

// later takes back a probe of a state that was not sent: if there are no others, the
// next may be, after d.
func (c *circuit) postpone(state int, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state { // something that was in flight has changed it
		return
	}
	c.probesOut--
	if c.probesOut <= 0 {
		c.probesOut = 0
		c.retryAt = time.Now().Add(d)
	}
}

// failures is how often in a row the topic was found to be out.
func (c *circuit) failures() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trips
}

// pause is why the topic is out, and since when; since is zero while it is not.
func (c *circuit) pause() (cause string, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isOpen() {
		return "", time.Time{}
	}
	return c.cause, c.since
}
