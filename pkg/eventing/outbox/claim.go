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
		r.agenda.giveBack(after)
		return err
	}
	r.pass(batch{c, who, sent, since, lows}, nil, claimed)
	if c.Cut {
		r.agenda.scanFrom(bound, sent)
	} else if c.Passed {
		r.agenda.scanFrom(bound, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	r.agenda.claimed(c.Seen, bound)
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
	found, retryIn, err := r.candidates(claiming, c)
	if err != nil {
		r.flight.release()
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
// found.
func (r *Relay) candidates(ctx context.Context, c *circuit) (found batch, retryIn time.Duration, err error) {
	var others []string
	for kind, other := range r.circuits {
		if other != c {
			others = append(others, kind)
		}
	}
	_, alive := r.agenda.leaving()
	some := r.claim(others, alive)
	some.Aggregates, some.Events, some.PerAggregate = probeAmong, probeAmong, 1
	if c.failures()%2 == 0 {
		if found, err = r.leftAlone(ctx, some); err != nil || len(found.Runs) > 0 {
			return found, 0, err
		}
	}
	found = batch{who: some, sent: time.Now(), low: queue.Beginning}
	if found.Claimed, retryIn, err = r.queue.Retries(ctx, some); err != nil || len(found.Runs) > 0 || c.failures()%2 == 0 {
		return found, retryIn, err
	}
	found, err = r.leftAlone(ctx, some)
	return found, retryIn, err
}

// leftAlone claims among all that this relay may have unfinished.
func (r *Relay) leftAlone(ctx context.Context, who queue.Claim) (batch, error) {
	b := batch{who: who, low: queue.Earliest(r.agenda.low(), r.flight.low())}
	for parts := b.low.Since(); len(b.Runs) == 0 && len(parts) > 0; {
		b.sent = time.Now()
		p, err := r.queue.Scan(ctx, who, parts[0], scanRows)
		if err != nil {
			return b, err
		}
		if b.Claimed = p.Claimed; p.Done {
			parts = parts[1:]
		} else {
			parts[0] = p.Next
		}
	}
	return b, nil
}

// subject is an aggregate.
type subject struct{ kind, id string }

// batch is the result of one claim, with the claim, the time when it was sent, and a
// snapshot to which none of its events was visible.
type batch struct {
	queue.Claimed

	who  queue.Claim
	sent time.Time
	low  queue.Snapshot
	lows map[subject]queue.Snapshot // of some; may be nil
}

// pass gives the claimed runs to the publishers, and returns how many probes are among
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
		Token: r.token, Alive: alive, Aggregates: r.flight.aggregates(), Events: claimEvents, PerAggregate: r.reach.limit(),
		Bytes: claimBytes, Without: closed,
	}
}

// joining is the relay's row in the table of relays.
type joining struct {
	mu     sync.Mutex
	server time.Time // of the last beat; zero after one with an unknown outcome
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
	first := low == ""
	b, err := r.queue.Beat(ctx, r.token, low, r.joining.server, ended)
	if err != nil {
		r.joining.server = time.Time{}
		return err
	}
	anew := first || !r.joining.server.IsZero() && !b.Server.Equal(r.joining.server)
	r.joining.server = b.Server
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
