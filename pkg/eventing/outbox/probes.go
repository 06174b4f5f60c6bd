package outbox

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// startProbe returns the state in which the caller may probe the paused topic, or 0. It
// reserves the probe: no other caller may probe until this one has a result.
func (p *topicPause) startProbe() (state int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isPaused() || p.probesOut > 0 || time.Now().Before(p.retryAt) {
		return 0
	}
	p.probesOut = 1
	return p.state
}

// chooseProbes returns the heads of the probes among batches, for that state. It returns
// none if a batch in flight has ended the state. It prefers aggregates that have not been
// refused.
func (p *topicPause) chooseProbes(state int, batches []queue.Batch) map[uuid.UUID]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != state {
		return nil
	}
	width := 1
	if p.cause == causeRefusals {
		width = 1 << min(2*(p.pauses-1), 10)
	}
	var preferred, others []queue.Batch
	for _, b := range batches {
		if key := b.Key(); p.refused[key] || p.knownBad[key] {
			others = append(others, b)
		} else {
			preferred = append(preferred, b)
		}
	}
	all := slices.Concat(preferred, others)
	p.probesOut = min(width, len(all))
	probes := make(map[uuid.UUID]bool, p.probesOut)
	for _, b := range all[:p.probesOut] {
		probes[b.Head()] = true
	}
	return probes
}

// nextProbe is when to ask again whether a probe is due.
func (p *topicPause) nextProbe() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probesOut > 0 { // its result wakes the probe loop
		return time.Now().Add(publishTimeout)
	}
	return p.retryAt
}

// postpone takes back a probe of that state that was not sent. If no other probe is out,
// the next one may be sent after d.
func (p *topicPause) postpone(state int, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != state { // a batch in flight has changed it
		return
	}
	p.probesOut--
	if p.probesOut <= 0 {
		p.probesOut = 0
		p.retryAt = time.Now().Add(d)
	}
}

// probeFailed expects the lock. It notes that a probe has failed. When none is out any
// more, the topic is still out.
func (p *topicPause) probeFailed(cause string) bool {
	p.probesOut--
	if p.probesOut > 0 {
		return false
	}
	p.pause(cause)
	return true
}
