package outbox

import (
	"maps"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// pauseAfter is how many failures in a row, with no success between them, are taken for
	// an outage of the topic rather than of some aggregates.
	pauseAfter = 3
	// refusedAfter is how many different aggregates must be refused, with no success since,
	// for that to be the topic's fault. It is low because the two mistakes do not cost the
	// same. Aggregates that are parked for a fault of the topic need an operator each. A
	// topic that is paused for a fault of some aggregates resumes with the first success,
	// and a probe of any other aggregate suffices for that. One or two aggregates that
	// write alone are parked: their case looks like that of bad events.
	refusedAfter = 3
	// maxRemembered bounds how many refused aggregates a topic remembers. Beyond it, bad
	// aggregates can pause the topic once more.
	maxRemembered = 10_000
)

// Causes of a pause, as log and metric name them.
const (
	causeOutage   = "outage"
	causeRefusals = "refusals"
)

// topicPause pauses one topic while it is out, and probes it: see "Faults" in the package
// doc. It is not the circuit breaker of the reads: that one lets calls wait and counts their
// failures, while this one takes events of its own choice as probes, and decides whether a
// refusal is about the event or about the topic.
type topicPause struct {
	topic   string
	types   []string // the aggregate types that go there
	backoff backoff.Policy

	mu sync.Mutex
	// state counts the pauses and their ends: it is odd during a pause. A probe carries
	// the state that it was sent in. In another state its failure says nothing.
	state         int
	outagesInARow int       // since the last answer
	pauses        int       // since the last success: the first, and one more for each probe that failed
	retryAt       time.Time // zero: not paused
	since         time.Time // paused since
	cause         string    // of the last pause
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

// newTopicPauses returns the pause of each topic, by aggregate type.
func newTopicPauses(topics map[string]string, pause backoff.Policy) map[string]*topicPause {
	byTopic, byType := map[string]*topicPause{}, map[string]*topicPause{}
	for kind, topic := range topics {
		p := byTopic[topic]
		if p == nil {
			p = &topicPause{topic: topic, backoff: pause, refused: map[string]bool{}, knownBad: map[string]bool{}}
			byTopic[topic] = p
		}
		p.types = append(p.types, kind)
		byType[kind] = p
	}
	return byType
}

func (p *topicPause) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isPaused()
}

// isPaused expects the lock.
func (p *topicPause) isPaused() bool { return !p.retryAt.IsZero() }

// admits reports whether a batch may be sent: a probe of that state, or with 0 any other
// batch.
func (p *topicPause) admits(probe int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.isPaused() || probe == p.state
}

// isLate expects the lock. It reports whether the topic has changed its state since the probe
// was chosen.
func (p *topicPause) isLate(probe int) bool { return probe != 0 && probe != p.state }

// failed counts an outage that a batch met: a probe of that state, or with 0 another batch.
// It returns how long the batch's aggregate waits. paused says that the topic is paused
// from now on.
func (p *topicPause) failed(err error, probe int) (wait time.Duration, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isLate(probe) {
		return p.backoff.Delay(p.outagesInARow + 1), false
	}
	p.outagesInARow++
	wait = p.backoff.Delay(p.outagesInARow)
	if p.isPaused() {
		return wait, probe != 0 && p.probeFailed(causeOutage)
	}
	if p.outagesInARow < pauseAfter && !isTopicFault(err) {
		return wait, false
	}
	p.pause(causeOutage)
	return wait, true
}

// verdict is the decision about a refusal.
type verdict struct {
	// onEvent says that the event is at fault: it has used an attempt. If it is false, the
	// topic may be at fault: the event waits for as long as wait says, and keeps its attempts.
	onEvent bool
	wait    time.Duration
	// paused says that the topic is paused from now on, or that its probe shows that it
	// still is. resumed says that its pause has ended.
	paused, resumed bool
}

// refusal counts a refused event of the aggregate: of a probe of that state, or with 0 of
// another batch.
func (p *topicPause) refusal(aggregate string, probe int) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !p.isLate(probe):
	case p.isPaused():
		return verdict{wait: p.backoff.Delay(p.pauses + 1)}
	default: // another probe has succeeded meanwhile
		p.knownBad[aggregate] = true
		return verdict{}
	}
	if !p.knownBad[aggregate] && len(p.refused) < maxRemembered {
		p.refused[aggregate] = true
	}
	wait := p.backoff.Delay(p.pauses + 1)
	switch {
	case len(p.refused) < refusedAfter:
		// The outage, if there was one, is over. A probe spends no attempt: it was sent
		// to test the topic.
		resumed := p.resume()
		return verdict{onEvent: !resumed, resumed: resumed}
	case p.isPaused():
		return verdict{wait: wait, paused: probe != 0 && p.probeFailed(causeRefusals)}
	default:
		p.pause(causeRefusals)
		return verdict{wait: wait, paused: true}
	}
}

// pause expects the lock.
func (p *topicPause) pause(cause string) {
	now := time.Now()
	if !p.isPaused() {
		p.since = now
		p.state++
	}
	p.pauses++
	p.cause = cause
	p.retryAt = now.Add(p.backoff.Delay(p.pauses))
}

// succeeded notes that the broker took an event of the aggregate, which ends the pause. It
// reports whether there was one.
func (p *topicPause) succeeded(aggregate string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.knownBad)+len(p.refused) > maxRemembered {
		clear(p.knownBad)
	}
	maps.Copy(p.knownBad, p.refused)
	delete(p.knownBad, aggregate)
	clear(p.refused)
	return p.resume()
}

// resumeIdle ends the pause of that state, because no event waits for the topic, and
// reports whether it did. The next refusal or outage pauses the topic again.
func (p *topicPause) resumeIdle(state int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == state && p.resume()
}

// resume expects the lock. It reports whether there was a pause to end.
func (p *topicPause) resume() bool {
	wasPaused := p.isPaused()
	if wasPaused {
		p.state++
	}
	p.outagesInARow, p.pauses, p.retryAt, p.probesOut = 0, 0, time.Time{}, 0
	return wasPaused
}

// forget forgets a parked aggregate: its next refusal is a new case.
func (p *topicPause) forget(aggregate string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.knownBad, aggregate)
}

// failures is how many times in a row the topic was found to be out.
func (p *topicPause) failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pauses
}

// reason is why the topic is paused, and since when. since is zero while it is
// not.
func (p *topicPause) reason() (cause string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isPaused() {
		return "", time.Time{}
	}
	return p.cause, p.since
}
