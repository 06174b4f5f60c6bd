package outbox

import (
	"maps"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// pauseAfter is how many failures in a row, with no success between them, count as an
	// outage of the whole topic and not only of some aggregates.
	pauseAfter = 3
	// refusedAfter is how many different aggregates must be refused, with no success in between, before
	// the relay blames the topic. It is low, because parking by mistake costs more: an operator must release
	// each event. A pause by mistake ends with the first success, for which a probe of any other aggregate
	// suffices. If only one or two aggregates write, their events are parked, because nothing tells a bad
	// topic from bad events.
	refusedAfter = 3
	// maxRemembered bounds how many refused aggregates a topicPause remembers. If there are more,
	// it forgets that they are bad. Then they can pause the topic once more.
	maxRemembered = 10_000
)

// Causes of a pause, as log and metric name them.
const (
	causeOutage   = "outage"
	causeRefusals = "refusals"
)

// topicPause pauses one topic while the topic fails, and decides about its probes. See "Faults" in
// the package doc. A topicPause differs from the circuit breaker for reads (package consistency), which
// makes calls wait and counts the failures of these calls. A topicPause chooses the events that serve
// as probes, and decides whether a refusal is the fault of the event or of the topic.
type topicPause struct {
	topic   string
	types   []string // the aggregate types that are published to the topic
	backoff backoff.Policy

	mu sync.Mutex
	// state is incremented when a pause begins and when it ends, so it is odd during a pause.
	// A probe carries the state in which it was chosen. If the state has changed since then,
	// a failure of the probe says nothing about the topic.
	state         int
	outagesInARow int       // since the last answer of the broker
	pauses        int       // 1 for a pause, plus 1 for each failed probe since; 0 while not paused
	retryAt       time.Time // when the next probe is due; zero if the topic is not paused
	since         time.Time // when the last pause began
	cause         string    // of the last pause
	probesOut     int       // probes without a result
	scan          probeScan // used by the probing goroutine only
	// refused are the aggregates that were refused since the last success. While refused has
	// refusedAfter or more aggregates, a refusal spends no attempt of its event. Only a success
	// clears refused. So a refusal also spends no attempt after resumeIdle has ended a pause
	// because no event was left to probe with.
	refused map[string]bool
	// knownBad are the aggregates that were refused before another aggregate succeeded. The
	// success showed that the topic works. So refusals of these aggregates do not blame the topic.
	knownBad map[string]bool
}

// newTopicPauses returns the topicPause of each aggregate type. The types of one topic share one
// topicPause.
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

// admits reports whether a batch may be sent. probe is the state in which the batch was chosen
// as a probe, or 0 for any other batch.
func (p *topicPause) admits(probe int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.isPaused() || probe == p.state
}

// isLate expects the lock. It reports whether a batch is a probe and was chosen in an earlier state
// than the present one.
func (p *topicPause) isLate(probe int) bool { return probe != 0 && probe != p.state }

// failed counts an outage that a batch met. probe is as in admits. wait is how long the
// batch's aggregate waits. paused reports whether this failure has paused the topic or
// prolonged its pause.
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
	// onEvent says that the event is at fault and has used an attempt. If onEvent is false, the
	// topic may be at fault. The event then keeps its attempts and waits for the duration wait.
	onEvent bool
	wait    time.Duration
	// paused says that the refusal has paused the topic or prolonged its pause. resumed says
	// that the refusal has ended the pause.
	paused, resumed bool
}

// refusal counts a refused event of the aggregate, and decides whether the event or the topic is at
// fault. probe is as in admits.
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
		// The broker has answered, so an outage, if there was one, is over. A refused probe
		// spends no attempt, because it was sent to test the topic.
		resumed := p.resume()
		return verdict{onEvent: !resumed, resumed: resumed}
	case p.isPaused():
		return verdict{wait: wait, paused: probe != 0 && p.probeFailed(causeRefusals)}
	default:
		p.pause(causeRefusals)
		return verdict{wait: wait, paused: true}
	}
}

// pause expects the lock. It begins a pause, or prolongs the present one after a failed probe.
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

// succeeded notes that the broker accepted an event of the aggregate. That ends the pause of
// the topic. succeeded reports whether the topic was paused.
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

// resumeIdle ends the pause because no event waits for the topic. It does nothing if the pause is
// no longer in the given state. It reports whether it ended the pause. If the pause was for
// refusals, the next refusal pauses the topic again.
func (p *topicPause) resumeIdle(state int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == state && p.resume()
}

// resume expects the lock. It ends the pause, and reports whether there was a pause.
func (p *topicPause) resume() bool {
	wasPaused := p.isPaused()
	if wasPaused {
		p.state++
	}
	p.outagesInARow, p.pauses, p.retryAt, p.probesOut = 0, 0, time.Time{}, 0
	return wasPaused
}

// forget removes a parked aggregate from knownBad. The next refusal of the aggregate counts like
// its first refusal.
func (p *topicPause) forget(aggregate string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.knownBad, aggregate)
}

// failures returns 1 for the present pause plus 1 for each failed probe since, or 0 if the topic is
// not paused.
func (p *topicPause) failures() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pauses
}

// reason returns why the topic is paused, and since when. since is zero if the topic is not
// paused.
func (p *topicPause) reason() (cause string, since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isPaused() {
		return "", time.Time{}
	}
	return p.cause, p.since
}
