package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// candidatesPerProbe is how many aggregates probes are chosen from, at most. The others
	// go back. probeBytes bounds their payloads.
	candidatesPerProbe = 64
	probeBytes         = 1 << 20
	// maxCandidates bounds the batches in flight that probes were chosen from. They come on
	// top of maxEvents: claims and scans do not wait for them.
	maxCandidates = 4 * candidatesPerProbe
	// probeTimeout bounds one search for candidates.
	probeTimeout = queue.Timeout
	// probeScanShare is by how much the pause after a scan that found nothing is longer
	// than the scan, and probeScanPause the longest pause.
	probeScanShare = 20
	probeScanPause = 30 * time.Second
)

// probeLoop probes the paused topics until ctx ends. Claims and scans never wait for it.
// Its statements end with flying, as in claimNew.
func (r *Relay) probeLoop(ctx, flying context.Context, claimed chan<- *leasedBatch) {
	for ctx.Err() == nil {
		again := r.probe(flying, claimed)
		backoff.Sleep(ctx, time.Until(again), r.wakeProbes)
	}
}

// probe probes each paused topic that is due, and returns when to come back.
func (r *Relay) probe(ctx context.Context, claimed chan<- *leasedBatch) (again time.Time) {
	again = time.Now().Add(heartbeatEvery)
	for _, p := range r.pauses {
		if state := p.startProbe(); state != 0 {
			r.probeTopic(ctx, p, state, claimed)
		}
		if p.paused() {
			again = soonest(again, p.nextProbe())
		}
	}
	return again
}

// probeTopic makes one search for events to probe a topic with. A failed search is repeated
// after a pause, and does not affect other topics.
func (r *Relay) probeTopic(ctx context.Context, p *topicPause, state int, claimed chan<- *leasedBatch) {
	if !r.inFlight.hasRoomForProbes() {
		p.postpone(state, heartbeatEvery/10)
		return
	}
	ctx, done := context.WithTimeout(ctx, probeTimeout)
	defer done()
	defer r.followUps.setProbeLow("")
	found, retryIn, all, err := r.candidates(ctx, p)
	switch {
	case err != nil:
		r.followUps.noteUnknownLeases()
		pause := p.scan.failed(time.Now(), r.options.OutageBackoff)
		p.postpone(state, pause)
		r.log.WarnContext(ctx, "no event to probe a topic with could be claimed, other topics go on", "topic", p.topic,
			"error", err, "failures", p.scan.failures, "retry_in_ms", pause.Milliseconds())
		return
	case len(found.Batches) > 0:
		// Batches that are not chosen go back by themselves: the topic is paused.
		found.chosen, found.state = p.chooseProbes(state, found.Batches), state
		for range len(found.chosen) - r.dispatch(found, claimed) {
			p.postpone(state, 0) // the batch is in flight already
		}
	case len(p.scan.parts) > 0:
		p.postpone(state, 0)
	case retryIn > 0:
		p.postpone(state, min(retryIn, heartbeatEvery))
	case r.inFlight.has(func(b queue.Batch) bool { return slices.Contains(p.types, b[0].AggregateType) }): // their results decide
		p.postpone(state, heartbeatEvery/10)
	case !all:
		p.postpone(state, min(time.Until(p.scan.notBefore), heartbeatEvery))
	case p.resumeIdle(state): // no event waits for the topic
		r.followUps.topicResumed()
	}
	p.scan.succeeded()
}

// candidates claims events that probes are chosen from: retries, which failed there before,
// or events that claims have skipped. The order of the two alternates with each probe,
// because many bad events would otherwise keep the good ones from being found.
// For the same reason the scan of a topic that refuses events skips retries: a bad event
// that was probed is one from then on. all says that none of the skipped events is left.
func (r *Relay) candidates(ctx context.Context, p *topicPause) (found claimResult, retryIn time.Duration, all bool, err error) {
	var others []string
	for kind, other := range r.pauses {
		if other != p {
			others = append(others, kind)
		}
	}
	_, alive, _ := r.followUps.exclusions()
	some := r.claimLimits(others, alive, nil)
	some.Aggregates, some.Events, some.PerAggregate, some.Bytes = candidatesPerProbe, candidatesPerProbe, 1, probeBytes
	cause, _ := p.reason()
	some.SkipRetries = cause == causeRefusals
	leftFirst := len(p.scan.parts) > 0 || p.failures()%2 == 0
	if leftFirst {
		if found, all, err = r.claimPaused(ctx, some, &p.scan); err != nil || len(p.scan.parts) > 0 || len(found.Batches) > 0 {
			return found, 0, all, err
		}
	}
	found = claimResult{claim: some, sent: time.Now(), candidates: true}
	if found.Claimed, retryIn, err = r.queue.ClaimRetries(ctx, some); err != nil || len(found.Batches) > 0 || leftFirst {
		return found, retryIn, all, err
	}
	found, all, err = r.claimPaused(ctx, some, &p.scan)
	return found, retryIn, all, err
}

// probeScan is a scan of all events that a relay may have unfinished, a page at a time. It
// may read everything that was written since a topic was paused, hence its pauses.
type probeScan struct {
	outages // of the searches

	low   queue.TxSnapshot
	parts []queue.Cursor // the rest; none: the next scan begins
	took  time.Duration
	// notBefore is when the next scan may begin.
	notBefore time.Time
}

// claimPaused claims among the next page of all events that this relay may have unfinished.
// all says that this was the last page, and that no page had a candidate. A failed page
// ends the scan: the next search begins with the retries.
func (r *Relay) claimPaused(ctx context.Context, claim queue.Claim, s *probeScan) (b claimResult, all bool, err error) {
	if len(s.parts) == 0 {
		if time.Now().Before(s.notBefore) {
			return claimResult{}, false, nil
		}
		s.low, s.took = r.followUps.low(r.inFlight), 0
		s.parts = s.low.Since()
	}
	r.followUps.setProbeLow(s.low)
	b = claimResult{claim: claim, sent: time.Now(), low: s.low, candidates: true}
	p, err := r.queue.Scan(ctx, claim, s.parts[0], scanRows)
	s.took += time.Since(b.sent)
	b.Claimed = p.Claimed
	switch {
	case err != nil || len(p.Batches) > 0:
		s.parts = nil
	default:
		s.parts = behind(s.parts, p)
	}
	if len(s.parts) == 0 && len(p.Batches) == 0 {
		s.notBefore, all = time.Now().Add(min(probeScanPause, probeScanShare*s.took)), err == nil
	}
	return b, all, err
}

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
