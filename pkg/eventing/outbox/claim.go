package outbox

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// probeAmong is how many aggregates probes are chosen from, at most. The others go back.
const probeAmong = 64

// claiming claims new events and passes them on to claimed, until ctx ends.
func (r *Relay) claiming(ctx context.Context, claimed chan<- *hold) {
	var s claims
	for ctx.Err() == nil {
		r.beat()
		r.turn(ctx, &s, claimed)
	}
}

// turn does the next step of the schedule of claims.
func (r *Relay) turn(ctx context.Context, s *claims, claimed chan<- *hold) {
	now, n := time.Now(), r.agenda.news()
	var closed []string
	var probeAt time.Time
	if n.joined && !now.Before(s.heldUntil) {
		var err error
		if closed, probeAt, err = r.probe(ctx, claimed); err != nil {
			r.held(ctx, s, err)
			return
		}
		r.agenda.outage(closed)
	}
	woken := false
	select {
	case <-r.woken:
		woken = true
	default:
	}
	todo, until := s.next(now, n, woken, len(closed) > 0 && len(closed) == len(r.circuits), probeAt)
	switch todo {
	case join:
		r.join(ctx, s)
	case claim:
		if !r.flight.reserve(byClaim) {
			if woken {
				signal(r.woken)
			}
			eventing.Sleep(ctx, beatEvery, r.flight.landed)
			return
		}
		if err := r.fresh(ctx, s, closed, claimed); err != nil {
			r.held(ctx, s, err)
		}
	case sit:
		if woken {
			signal(r.woken)
		}
		eventing.Sleep(ctx, min(time.Until(until), beatEvery), r.agenda.told)
	default:
		r.rest(ctx, min(time.Until(until), beatEvery))
	}
}

// held notes that the database has not answered a claim.
func (r *Relay) held(ctx context.Context, s *claims, err error) {
	failures := s.failed(time.Now())
	r.failures.Store(int64(failures))
	r.log.WarnContext(ctx, "relay is held up, nothing is lost",
		"error", err, "failures", failures, "retry_in_ms", time.Until(s.heldUntil).Milliseconds())
}

// rest waits, or until there is news.
func (r *Relay) rest(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.agenda.told:
	case <-r.woken:
		signal(r.woken) // for turn to see
	}
}

// fresh claims new events. Room for it is reserved.
func (r *Relay) fresh(ctx context.Context, s *claims, closed []string, claimed chan<- *hold) error {
	since, after, alive := r.agenda.take(claimEvents)
	lows := make(map[subject]queue.Snapshot, len(after))
	at, bound := make([]queue.Position, len(after)), since
	for i, p := range after {
		at[i], lows[subject{p.AggregateType, p.AggregateID}], bound = p.Position, p.low, queue.Earliest(bound, p.low)
	}
	sent := time.Now()
	// Not cancelled with ctx: a claim that is given up may still commit, after
	// the settling that would have handed it back.
	claiming, done := outlive(ctx, drainTime)
	defer done()
	who := r.claim(closed, alive)
	c, err := r.queue.Fresh(claiming, who, since, at)
	if err != nil {
		r.flight.release()
		r.agenda.doubt()
		r.agenda.giveBack(after)
		return err
	}
	r.pass(batch{c, who, sent, since, lows}, nil, claimed)
	if c.Cut {
		r.agenda.scanFrom(bound, sent)
	} else if c.Passed {
		r.agenda.scanFrom(bound, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	r.agenda.claimed(c.Seen, bound, closed...)
	r.failures.Store(0)
	s.claimed(sent, len(c.Runs), c.Cut)
	return nil
}

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
		w.from = queue.Earliest(r.agenda.low(), r.flight.low())
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

// subject is an aggregate.
type subject struct{ kind, id string }

// batch is what one claim took: who claimed, when it was sent, and what none of it was
// visible to: empty for retries, which are found as such until they are published.
type batch struct {
	queue.Claimed

	who  queue.Claim
	sent time.Time
	low  queue.Snapshot
	lows map[subject]queue.Snapshot // of some; may be nil
}

// full reports whether the claim's limits may have cut something: a head, or the end of
// a run.
func (b batch) full() bool {
	events, bytes := 0, 0
	for _, r := range b.Runs {
		events, bytes = events+len(r), bytes+r.Bytes()
	}
	return b.Cut || events >= b.who.Events || bytes >= b.who.Bytes
}

// pass gives what was claimed to the publishers, and returns how many probes are among
// it. The room that was reserved is given back.
func (r *Relay) pass(b batch, probes map[uuid.UUID]bool, claimed chan<- *hold) (passed int) {
	if probes == nil {
		r.flight.learn(b.Runs)
		r.reach.learn(b.Runs)
	}
	for _, h := range r.flight.add(b) {
		if h.probe = probes[h.run.Head()]; h.probe {
			passed++
		}
		claimed <- h
	}
	return passed
}

// claim returns this relay's limits and name for a claim.
func (r *Relay) claim(closed, alive []string) queue.Claim {
	return queue.Claim{
		Token: r.token, Alive: alive, Doubt: r.agenda.doubting(), Without: closed,
		Aggregates: r.flight.aggregates(), Events: claimEvents, PerAggregate: r.reach.limit(), Bytes: claimBytes,
	}
}

// joining is the relay's row in the table of relays.
type joining struct {
	mu      sync.Mutex
	server  time.Time // of the last beat that was answered
	unknown bool      // whether there was one since that was not
}

// join writes the relay into the table of relays, before it claims anything.
func (r *Relay) join(ctx context.Context, s *claims) {
	if err := r.writeBeat(ctx, false); err != nil {
		r.held(ctx, s, err)
		return
	}
	s.failures, s.heldUntil = 0, time.Time{}
	r.failures.Store(0)
}

// beating keeps the relay's row, and takes over from those that have died, until ctx
// ends.
func (r *Relay) beating(ctx context.Context) {
	for eventing.Sleep(ctx, jittered(queue.BeatEvery), nil) {
		if !r.agenda.news().joined {
			continue
		}
		if err := r.writeBeat(ctx, false); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "relay cannot show that it is alive: others may look for its events", "error", err)
		}
	}
}

func (r *Relay) writeBeat(ctx context.Context, ended bool) error {
	r.joining.mu.Lock()
	defer r.joining.mu.Unlock()
	// Between two looks at the lists: a run that is in flight now may have been in a list
	// before, and be there again.
	low := queue.Earliest(r.agenda.low(), r.flight.low(), r.agenda.low())
	first, met := low == "", r.joining.server
	if r.joining.unknown {
		met = time.Time{} // what it has taken over, if anything, is in its row
	}
	b, err := r.queue.Beat(ctx, r.token, low, met, ended)
	if err != nil {
		r.joining.unknown = true
		return err
	}
	anew := first || !b.Server.Equal(r.joining.server)
	r.joining.server, r.joining.unknown = b.Server, false
	r.agenda.beaten(b, low, anew)
	return nil
}

// leave says that the relay has ended: others need not wait until they take it for
// dead.
func (r *Relay) leave(closing context.Context) {
	if !r.agenda.news().joined || closing.Err() != nil {
		return
	}
	if err := r.writeBeat(closing, true); err != nil {
		r.log.WarnContext(closing, "relay cannot say that it has ended: others will find out", "error", err)
	}
}
