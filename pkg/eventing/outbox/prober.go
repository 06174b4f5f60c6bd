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
	// candidatesPerProbe is the largest number of aggregates among which probes are chosen.
	// Aggregates that are not chosen are handed back. probeBytes bounds the size of the payloads
	// of all these aggregates together.
	candidatesPerProbe = 64
	probeBytes         = 1 << 20
	// maxCandidates bounds the number of batches in flight from which probes are chosen. These batches
	// do not count against maxEvents, so claims and scans do not wait for them.
	maxCandidates = 4 * candidatesPerProbe
	// probeTimeout bounds one search for candidates.
	probeTimeout = queue.Timeout
	// After a scan for probes that found nothing, the pause before the next one is probeScanShare times
	// as long as the scan, and probeScanPause at most.
	probeScanShare = 20
	probeScanPause = 30 * time.Second
)

// probeLoop probes the paused topics until ctx ends. Claims and scans never wait for probeLoop. The
// statements of probeLoop are cancelled when flying ends, and not when ctx ends (see claimNew).
func (r *Relay) probeLoop(ctx, flying context.Context, toPublish chan<- *leasedBatch) {
	for ctx.Err() == nil {
		next := r.probe(flying, toPublish)
		backoff.Sleep(ctx, time.Until(next), r.wakeProbes)
	}
}

// probe probes each paused topic that is due. next is when the caller must call probe again.
func (r *Relay) probe(ctx context.Context, toPublish chan<- *leasedBatch) (next time.Time) {
	next = time.Now().Add(longestWait)
	for _, p := range r.pauses {
		if state := p.startProbe(); state != 0 {
			r.probeTopic(ctx, p, state, toPublish)
		}
		if p.paused() {
			next = soonest(next, p.nextProbe())
		}
	}
	return next
}

// probeTopic makes one search for events to probe a topic with. A failed search is repeated
// after a pause, and does not affect other topics.
func (r *Relay) probeTopic(ctx context.Context, p *topicPause, state int, toPublish chan<- *leasedBatch) {
	if !r.inFlight.hasRoomForProbes() {
		p.postpone(state, longestWait/10)
		return
	}
	ctx, done := context.WithTimeout(ctx, probeTimeout)
	defer done()
	defer r.followUps.endSearch()
	found, retryIn, all, err := r.candidates(ctx, p)
	switch {
	case err != nil:
		r.searchFailed(ctx, p, state, err)
		return
	case len(found.Batches) > 0:
		// A batch that is not chosen is handed back, because publish does not send it while the
		// topic is paused.
		found.chosen, found.state = p.chooseProbes(state, found.Batches), state
		for range len(found.chosen) - r.dispatch(found, toPublish) {
			p.postpone(state, 0) // a chosen batch was in flight already, so dispatch has skipped it
		}
	case len(p.scan.parts) > 0:
		p.postpone(state, 0)
	case retryIn > 0:
		p.postpone(state, min(retryIn, longestWait))
	case r.inFlight.has(func(b queue.Batch) bool { return slices.Contains(p.types, b[0].AggregateType) }):
		// The results of these batches decide.
		p.postpone(state, longestWait/10)
	case !all:
		p.postpone(state, min(time.Until(p.scan.notBefore), longestWait))
	case p.resumeIdle(state): // no event waits for the topic
		r.followUps.topicResumed(p.types)
	}
	p.scan.succeeded()
}

// searchFailed ends a failed search for events to probe a topic with.
func (r *Relay) searchFailed(ctx context.Context, p *topicPause, state int, err error) {
	r.claimLost(err)
	r.followUps.searchLost(p.types) // after claimLost, so that the scan finds leases that the relay does not know of
	pause := p.scan.failed(time.Now(), err, r.options.OutageBackoff)
	p.postpone(state, pause)
	r.log.WarnContext(ctx, "no event to probe a topic with could be claimed, other topics go on", "topic", p.topic,
		"error", err, "failures", p.scan.failures, "retry_in_ms", pause.Milliseconds())
}

// candidates claims events from which probes are chosen. The events are either retries, which
// failed at the topic before, or events that claims have skipped. candidates tries one kind first,
// and the other kind if it has found nothing. The kind that is tried first changes with each failed
// probe. Otherwise many bad events of one kind could keep the relay from finding good events of the
// other kind. If the topic refuses events, the scan skips retries, because a bad event is a retry
// once it has been probed. retryIn is the time until the next retry is due, or zero. all says that
// a complete scan has found no skipped event.
func (r *Relay) candidates(ctx context.Context, p *topicPause) (found claimResult, retryIn time.Duration, all bool, err error) {
	var others []string
	for kind, other := range r.pauses {
		if other != p {
			others = append(others, kind)
		}
	}
	without := r.followUps.exclusions()
	without.paused, without.held = others, nil
	some := r.claimLimits(without)
	some.Aggregates, some.Events, some.PerAggregate, some.Bytes = candidatesPerProbe, candidatesPerProbe, 1, probeBytes
	cause, _ := p.reason()
	some.SkipRetries = cause == causeRefusals
	leftFirst := len(p.scan.parts) > 0 || p.failures()%2 == 0
	if leftFirst {
		if found, all, err = r.claimPaused(ctx, some, p); err != nil || len(p.scan.parts) > 0 || len(found.Batches) > 0 {
			return found, 0, all, err
		}
	}
	found = claimResult{claim: some, sent: time.Now(), low: datedLow{life: without.life}, candidates: true}
	if found.Claimed, retryIn, err = r.queue.ClaimRetries(ctx, some); err != nil || len(found.Batches) > 0 || leftFirst {
		return found, retryIn, all, err
	}
	found, all, err = r.claimPaused(ctx, some, p)
	return found, retryIn, all, err
}

// probeScan is a scan, page by page, of all events of a topic that a relay may not have finished, except those in flight. It
// may read everything that was written since the topic was paused, so there are pauses between scans.
type probeScan struct {
	outages // counts failed searches

	low   datedLow
	parts []queue.Cursor // the unread parts; if there are none, the next page begins a new scan
	took  time.Duration
	// notBefore is when the next scan may begin.
	notBefore time.Time
}

// claimPaused claims candidates in the next page of p's scan. all says that this was the last page, and
// that no page of the scan had a candidate. A failed page ends the scan. The next scan begins after a
// pause, in which searches find retries only.
func (r *Relay) claimPaused(ctx context.Context, claim queue.Claim, p *topicPause) (b claimResult, all bool, err error) {
	s := &p.scan
	if len(s.parts) == 0 && time.Now().Before(s.notBefore) {
		return claimResult{}, false, nil
	}
	r.followUps.search(s, p.types)
	b = claimResult{claim: claim, sent: time.Now(), low: s.low, candidates: true}
	page, err := r.queue.Scan(ctx, claim, s.parts[0], scanRows)
	s.took += time.Since(b.sent)
	b.Claimed = page.Claimed
	switch {
	case err != nil || len(page.Batches) > 0:
		s.parts = nil
	default:
		s.parts = behind(s.parts, page)
	}
	if len(s.parts) == 0 && len(page.Batches) == 0 {
		s.notBefore, all = time.Now().Add(min(probeScanPause, probeScanShare*s.took)), err == nil
	}
	return b, all, err
}

// startProbe returns the state in which the caller may probe the paused topic, or 0 if no probe is
// due. Until this probe has a result, startProbe returns 0.
func (p *topicPause) startProbe() (state int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isPaused() || p.probesOut > 0 || time.Now().Before(p.retryAt) {
		return 0
	}
	p.probesOut = 1
	return p.state
}

// chooseProbes chooses probes among batches and returns their heads. It prefers aggregates that
// have not been refused, and leaves out batches without a topic. It returns nil if the pause is no longer in the given state. The result of
// a batch in flight may have changed the state.
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
		switch key := b.Key(); {
		case !slices.Contains(p.types, b[0].AggregateType): // b has no topic, so its result says nothing about the topic of p
		case p.refused[key] || p.knownBad[key]:
			others = append(others, b)
		default:
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

// nextProbe returns when the probe loop looks at this topic next: at the end of its pause or, while probes are
// out, after publishTimeout. The result of a probe wakes the loop earlier.
func (p *topicPause) nextProbe() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.probesOut > 0 { // the result of a probe wakes the probe loop
		return time.Now().Add(publishTimeout)
	}
	return p.retryAt
}

// postpone notes that a probe, which was chosen in the given state, was not sent. If no other
// probe is out, the next one may be sent after d.
func (p *topicPause) postpone(state int, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != state { // the result of a batch in flight has changed the state
		return
	}
	p.probesOut--
	if p.probesOut <= 0 {
		p.probesOut = 0
		p.retryAt = time.Now().Add(d)
	}
}

// probeFailed expects the lock. It notes that a probe has failed. If no other probe is out, it
// prolongs the pause and returns true.
func (p *topicPause) probeFailed(cause string) bool {
	p.probesOut--
	if p.probesOut > 0 {
		return false
	}
	p.pause(cause)
	return true
}
