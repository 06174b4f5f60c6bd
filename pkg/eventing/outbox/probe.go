package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// probeAmong is how many aggregates probes are chosen from, at most. The others go back.
const probeAmong = 64

// probe tries each topic that is out and due with one event of one aggregate. It
// returns the aggregate types that are to be left alone, and when to come back.
func (r *Relay) probe(ctx context.Context, claimed chan<- *hold) (closed []string, again time.Time, err error) {
	again = time.Now().Add(beatEvery)
	for kind, c := range r.circuits {
		if c.due() {
			if err := r.probeTopic(ctx, c, claimed); err != nil {
				c.later(0)
				return nil, again, err
			}
		}
		if c.open() {
			closed = append(closed, kind)
			again = soonest(again, c.nextProbe())
		}
	}
	return closed, again, nil
}

// probeTopic looks for events of a topic that is out, each of another aggregate.
func (r *Relay) probeTopic(ctx context.Context, c *circuit, claimed chan<- *hold) error {
	if !r.flight.reserve(byClaim) {
		c.later(beatEvery / 10)
		return nil
	}
	claiming, done := outlive(ctx, drainTime)
	defer done()
	found, retryIn, more, err := r.candidates(claiming, c)
	if err != nil {
		r.flight.release()
		r.agenda.doubt()
		return err
	}
	if len(found.Runs) > 0 {
		// Runs that are not chosen go back by themselves: the circuit is open.
		probes := c.choose(found.Runs)
		for range len(probes) - r.pass(found, probes, claimed) {
			c.later(0) // it is in hand already
		}
		return nil
	}
	r.flight.release()
	switch {
	case more:
		c.later(0)
	case retryIn > 0:
		c.later(min(retryIn, beatEvery))
	case r.flight.held() > 0: // of which the settling will tell
		c.later(beatEvery / 10)
	case c.idle(): // there is nothing to hold up
		r.agenda.resumed()
	}
	return nil
}

// candidates claims events that probes are chosen from: among those that have failed
// there, and among those that claims have left alone. Which of the two come first
// changes with each probe: many that are bad would keep the good ones from being
// found. more says that the look at the latter is to go on in another turn.
func (r *Relay) candidates(ctx context.Context, c *circuit) (found batch, retryIn time.Duration, more bool, err error) {
	var others []string
	for kind, other := range r.circuits {
		if other != c {
			others = append(others, kind)
		}
	}
	_, alive := r.agenda.leaving()
	some := r.claim(others, alive)
	some.Aggregates, some.Events, some.PerAggregate = probeAmong, probeAmong, 1
	leftFirst := len(c.walk.parts) > 0 || c.failures()%2 == 0
	if leftFirst {
		if found, more, err = r.leftAlone(ctx, some, &c.walk); err != nil || more || len(found.Runs) > 0 {
			return found, 0, more, err
		}
	}
	found = batch{who: some, sent: time.Now()}
	if found.Claimed, retryIn, err = r.queue.Retries(ctx, some); err != nil || len(found.Runs) > 0 || leftFirst {
		return found, retryIn, false, err
	}
	found, more, err = r.leftAlone(ctx, some, &c.walk)
	return found, retryIn, more, err
}

// walk is a look through all that a relay may have unfinished, a page at a time: it may
// be long, and new events of other topics wait meanwhile.
type walk struct {
	from  queue.Snapshot
	parts []queue.Cursor // still to come; none: the next look begins
}

// leftAlone claims among the next page of all that this relay may have unfinished. more
// says that it has found nothing yet.
func (r *Relay) leftAlone(ctx context.Context, who queue.Claim, w *walk) (b batch, more bool, err error) {
	if len(w.parts) == 0 {
		w.from = r.agenda.low(r.flight)
		w.parts = w.from.Since()
	}
	b = batch{who: who, sent: time.Now(), low: w.from}
	p, err := r.queue.Scan(ctx, who, w.parts[0], scanRows)
	if err != nil {
		return b, false, err
	}
	b.Claimed = p.Claimed
	switch {
	case len(p.Runs) > 0:
		w.parts = nil
	case p.Done:
		w.parts = w.parts[1:]
	default:
		w.parts[0] = p.Next
	}
	return b, len(w.parts) > 0, nil
}
