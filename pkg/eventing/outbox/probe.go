package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// probeAmong is how many aggregates probes are chosen from, at most. The others go
	// back. probeBytes bounds their payloads.
	probeAmong = 64
	probeBytes = 1 << 20
	// maxCandidates bounds the runs in flight that probes were chosen from. They are
	// beyond maxEvents: claims and scans do not wait for them.
	maxCandidates = 4 * probeAmong
	// probeTimeout bounds one look for candidates.
	probeTimeout = queue.Timeout
	// walkShare is how much longer than a walk that found nothing the pause behind it
	// is, and walkPause the longest pause.
	walkShare = 20
	walkPause = 30 * time.Second
)

// probing tries the topics that are out, until ctx ends: beside the claims and the
// scans, which never wait for it. Its statements end with flying, not with ctx: a
// claim that is given up may still commit, after the settling that would have handed
// it back.
func (r *Relay) probing(ctx, flying context.Context, claimed chan<- *hold) {
	for ctx.Err() == nil {
		again := r.probe(flying, claimed)
		backoff.Sleep(ctx, time.Until(again), r.out)
	}
}

// probe tries each topic that is out and due, and returns when to come back.
func (r *Relay) probe(ctx context.Context, claimed chan<- *hold) (again time.Time) {
	again = time.Now().Add(beatEvery)
	for _, c := range r.circuits {
		if state := c.due(); state != 0 {
			r.probeTopic(ctx, c, state, claimed)
		}
		if c.open() {
			again = soonest(again, c.nextProbe())
		}
	}
	return again
}

// probeTopic makes one look for events to try a topic with. A look that fails is made
// again after a pause, and says nothing of other topics.
func (r *Relay) probeTopic(ctx context.Context, c *circuit, state int, claimed chan<- *hold) {
	if !r.flight.hasRoomForProbes() {
		c.later(state, beatEvery/10)
		return
	}
	ctx, done := context.WithTimeout(ctx, probeTimeout)
	defer done()
	defer r.agenda.probing("")
	found, retryIn, all, err := r.candidates(ctx, c)
	switch {
	case err != nil:
		r.agenda.doubt()
		c.walk.failures++
		pause := outage.Delay(c.walk.failures)
		c.later(state, pause)
		r.log.WarnContext(ctx, "no event to probe a topic with could be claimed, other topics go on", "topic", c.topic,
			"error", err, "failures", c.walk.failures, "retry_in_ms", pause.Milliseconds())
		return
	case len(found.Runs) > 0:
		// Runs that are not chosen go back by themselves: the circuit is open.
		probes := c.choose(state, found.Runs)
		for range len(probes) - r.pass(found, state, probes, claimed) {
			c.later(state, 0) // it is in hand already
		}
	case len(c.walk.parts) > 0:
		c.later(state, 0)
	case retryIn > 0:
		c.later(state, min(retryIn, beatEvery))
	case r.flight.has(c.types): // of which the settling will tell
		c.later(state, beatEvery/10)
	case !all:
		c.later(state, min(time.Until(c.walk.notBefore), beatEvery))
	case c.idle(state): // there is nothing to hold up
		r.agenda.resumed()
	}
	c.walk.failures = 0
}

// candidates claims events that probes are chosen from: among those that have failed
// there, and among those that claims have left alone. Which of the two come first
// changes with each probe: many that are bad would keep the good ones from being
// found. For the same reason a walk of a topic that refuses events passes retries: a bad
// event that was probed is one from then on. all says that there is none among the latter.
func (r *Relay) candidates(ctx context.Context, c *circuit) (found batch, retryIn time.Duration, all bool, err error) {
	var others []string
	for kind, other := range r.circuits {
		if other != c {
			others = append(others, kind)
		}
	}
	_, alive := r.agenda.leaving()
	some := r.claim(others, alive)
	some.Aggregates, some.Events, some.PerAggregate, some.Bytes = probeAmong, probeAmong, 1, probeBytes
	cause, _ := c.pause()
	some.Untried = cause == causeRefusals
	leftFirst := len(c.walk.parts) > 0 || c.failures()%2 == 0
	if leftFirst {
		if found, all, err = r.leftAlone(ctx, some, &c.walk); err != nil || len(c.walk.parts) > 0 || len(found.Runs) > 0 {
			return found, 0, all, err
		}
	}
	found = batch{who: some, sent: time.Now(), candidates: true}
	if found.Claimed, retryIn, err = r.queue.Retries(ctx, some); err != nil || len(found.Runs) > 0 || leftFirst {
		return found, retryIn, all, err
	}
	found, all, err = r.leftAlone(ctx, some, &c.walk)
	return found, retryIn, all, err
}

// walk is a look through all that a relay may have unfinished, a page at a time. What
// it passes may be all that was written since a topic went out, hence its pauses.
type walk struct {
	from  queue.Snapshot
	parts []queue.Cursor // still to come; none: the next walk begins
	took  time.Duration
	// notBefore is when the next one may begin.
	notBefore time.Time
	// failures counts the looks in a row that the database did not answer.
	failures int
}

// leftAlone claims among the next page of all that this relay may have unfinished. all
// says that it was the last one, and that none of them had anything. A page that fails
// ends the walk: the next look begins with the retries.
func (r *Relay) leftAlone(ctx context.Context, who queue.Claim, w *walk) (b batch, all bool, err error) {
	if len(w.parts) == 0 {
		if time.Now().Before(w.notBefore) {
			return batch{}, false, nil
		}
		w.from, w.took = r.agenda.low(r.flight), 0
		w.parts = w.from.Since()
	}
	r.agenda.probing(w.from)
	b = batch{who: who, sent: time.Now(), low: w.from, candidates: true}
	p, err := r.queue.Scan(ctx, who, w.parts[0], scanRows)
	w.took += time.Since(b.sent)
	b.Claimed = p.Claimed
	switch {
	case err != nil || len(p.Runs) > 0:
		w.parts = nil
	case p.Done:
		w.parts = w.parts[1:]
	default:
		w.parts[0] = p.Next
	}
	if len(w.parts) == 0 && len(p.Runs) == 0 {
		w.notBefore, all = time.Now().Add(min(walkPause, walkShare*w.took)), err == nil
	}
	return b, all, err
}
