package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// walkSteps is how many aggregates one statement of a walk passes at most.
	walkSteps = 1000
	// walkEvery is how often a walk passes all aggregates with pending events.
	// Together with the lease it bounds how long a dead relay's events wait.
	walkEvery = 5 * time.Second
	// beatEvery is how often a relay shows that it is alive while it waits.
	beatEvery = 5 * time.Second
	// probeAmong is how many aggregates probes are chosen from, at most all. The others
	// go back.
	probeAmong = 64
	// A claim takes at least so many aggregates, and at most.
	minAggregates, maxAggregates = 16, 500
)

// search is where a relay looks next. Only the claiming goroutine uses it.
type search struct {
	// since is the last snapshot; new events are those committed since. It is
	// empty until the first walk has begun.
	since queue.Snapshot
	// at is how far the walk has come; walking, again: it is on its way, and is
	// to begin anew when it is through.
	at             queue.Position
	walking, again bool
	// skipped says that what is new has left no room for the walk. It goes first then:
	// what a claim was too small for is new only once.
	skipped bool
	// walkAt and pollAt are when a walk, and a look at what is new, are due.
	walkAt, pollAt time.Time
	empty          int // looks in a row that found nothing
	// aggregates is how many of them are likely to fill a claim.
	aggregates int
	// steps is how many the next statement of a walk passes: few while each is
	// worth a claim, many while none is.
	steps int
}

// claiming claims and passes on to claimed, until ctx ends.
func (r *Relay) claiming(ctx context.Context, claimed chan<- *hold) {
	s := &search{again: true, aggregates: maxAggregates / 5, steps: maxAggregates / 5}
	for ctx.Err() == nil {
		r.beat()
		if !r.flight.room() {
			eventing.Sleep(ctx, beatEvery, r.flight.landed)
			continue
		}
		next, err := r.look(ctx, s, claimed)
		if err == nil {
			r.failures.Store(0)
			r.rest(ctx, next)
			continue
		}
		pause := outage.Delay(int(r.failures.Add(1)))
		r.log.WarnContext(ctx, "relay is held up, nothing is lost",
			"error", err, "failures", r.failures.Load(), "retry_in_ms", pause.Milliseconds())
		eventing.Sleep(ctx, pause, nil) // new work does not make the database come back
	}
}

// rest waits until next, or until there is news.
func (r *Relay) rest(ctx context.Context, next time.Time) {
	if _, lookAt := r.agenda.waiting(); !lookAt.IsZero() {
		next = earlier(next, lookAt)
	}
	wait := min(time.Until(next), beatEvery)
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
		signal(r.woken) // for look to see
	}
}

// look makes the claims that are due and returns when the next is.
func (r *Relay) look(ctx context.Context, s *search, claimed chan<- *hold) (time.Time, error) {
	now := time.Now()
	closed, probeAt, err := r.probe(ctx, claimed)
	if err != nil {
		return now, err
	}
	if len(closed) > 0 && len(closed) == len(r.circuits) {
		// New work does not make a topic come back.
		eventing.Sleep(ctx, time.Until(probeAt), r.agenda.told)
		return now, nil
	}
	select {
	case <-r.woken:
		s.pollAt = now
	default:
	}
	if s.since != "" && !s.skipped && (!now.Before(s.pollAt) || s.worthwhile(now, r.agenda)) {
		if err := r.fresh(ctx, s, closed, claimed); err != nil {
			return now, err
		}
	}
	if due := r.agenda.walkDue(now); !due.IsZero() && due.Before(s.walkAt) {
		s.walkAt = due
	}
	walks := ctx.Err() == nil && (s.walking || s.again || !now.Before(s.walkAt))
	s.skipped = walks && !r.flight.room()
	if walks && !s.skipped {
		if err := r.walk(ctx, s, closed, claimed); err != nil {
			return now, err
		}
	}
	if s.walking {
		return now, nil
	}
	next := earlier(s.pollAt, s.walkAt)
	if len(closed) > 0 {
		next = earlier(next, probeAt)
	}
	return next, nil
}

// worthwhile reports whether what follows published events is worth a claim. A
// walk on its way is busy anyway: then only if it fills one.
func (s *search) worthwhile(now time.Time, a *agenda) bool {
	n, lookAt := a.waiting()
	if s.walking {
		return n >= s.aggregates
	}
	return n > 0 && !now.Before(lookAt)
}

// fresh claims what is new.
func (r *Relay) fresh(ctx context.Context, s *search, closed []string, claimed chan<- *hold) error {
	after := r.agenda.take(s.aggregates)
	sent := time.Now()
	// Not cancelled with ctx: a claim that is given up may still commit, after
	// the settling that would have handed it back.
	claiming, done := outlive(ctx, drainTime)
	defer done()
	c, err := r.queue.Fresh(claiming, r.token, r.limits(s, closed), s.since, after)
	if err != nil {
		r.agenda.giveBack(after)
		return err
	}
	s.since = c.Seen
	s.took(c)
	r.reach.learn(c.Runs)
	s.empty++
	if len(c.Runs) > 0 {
		s.empty = 1
	}
	s.pollAt = sent.Add(idle.Delay(s.empty))
	if c.Cut {
		s.again, s.pollAt = true, sent // for what was new, and for what may be newer
		r.agenda.giveBack(missing(after, c.Runs))
	}
	r.pass(c.Runs, sent, false, claimed)
	return nil
}

// walk goes on with the walk, or begins it.
func (r *Relay) walk(ctx context.Context, s *search, closed []string, claimed chan<- *hold) error {
	sent := time.Now()
	if !s.walking {
		s.walking, s.again, s.at = true, false, queue.Position{}
		s.walkAt = sent.Add(walkEvery/2 + time.Duration(rand.Int64N(int64(walkEvery/2))))
	}
	claiming, done := outlive(ctx, drainTime)
	defer done()
	w, err := r.queue.Walk(claiming, r.token, r.limits(s, closed), s.at, s.steps)
	if err != nil {
		return err
	}
	if s.since == "" {
		s.since, s.pollAt = w.Seen, sent
	}
	s.took(w.Claimed)
	r.reach.learn(w.Runs)
	s.again = s.again || w.Cut
	s.at = w.Next
	s.steps = s.aggregates
	if len(w.Runs) == 0 {
		s.steps = walkSteps
	}
	if w.RetryIn > 0 {
		s.walkAt = earlier(s.walkAt, sent.Add(w.RetryIn))
	}
	s.walking = !w.Done
	r.pass(w.Runs, sent, false, claimed)
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
			again = earlier(again, c.nextProbe())
		}
	}
	return closed, again, nil
}

func (r *Relay) probeTopic(ctx context.Context, c *circuit, claimed chan<- *hold) error {
	others := make([]string, 0, len(r.circuits))
	for kind, other := range r.circuits {
		if other != c {
			others = append(others, kind)
		}
	}
	some := queue.Limits{Aggregates: probeAmong, Events: probeAmong, PerAggregate: 1, Bytes: claimBytes, Without: others}
	claiming, done := outlive(ctx, drainTime)
	defer done()
	var retryIn time.Duration
	for at, around := c.from(), false; ; {
		sent := time.Now()
		w, err := r.queue.Walk(claiming, r.token, some, at, walkSteps)
		if err != nil {
			return err
		}
		if len(w.Runs) > 0 {
			// What is not chosen goes back by itself: the circuit is open.
			probes, rest := c.choose(w.Runs)
			for range len(probes) - r.pass(probes, sent, true, claimed) {
				c.later(0)
			}
			r.pass(rest, sent, false, claimed)
			return nil
		}
		if retryIn == 0 || w.RetryIn > 0 && w.RetryIn < retryIn {
			retryIn = w.RetryIn
		}
		around = around || at == (queue.Position{})
		at = w.Next
		if w.Done {
			if around {
				break
			}
			at = queue.Position{}
		}
	}
	if retryIn > 0 {
		c.later(min(retryIn, beatEvery))
	} else if c.idle() {
		r.agenda.walkSoon()
	}
	return nil
}

// pass gives what was claimed to the publishers, and returns how many runs.
func (r *Relay) pass(runs []queue.Run, sent time.Time, probe bool, claimed chan<- *hold) int {
	holds := r.flight.add(runs, sent)
	for _, h := range holds {
		h.probe = probe
		claimed <- h
	}
	return len(holds)
}

func (r *Relay) limits(s *search, closed []string) queue.Limits {
	return queue.Limits{
		Aggregates: s.aggregates, Events: claimEvents, PerAggregate: r.reach.limit(), Bytes: claimBytes, Without: closed,
	}
}

// took learns from a claim how many aggregates make one.
func (s *search) took(c queue.Claimed) {
	n := 0
	for _, r := range c.Runs {
		n += len(r)
	}
	if n > 0 {
		s.aggregates = max(minAggregates, min(maxAggregates, claimEvents*len(c.Runs)/n))
	}
}

// missing are the positions behind which no run was claimed.
func missing(after []queue.Position, runs []queue.Run) []queue.Position {
	got := make(map[string]bool, len(runs))
	for _, r := range runs {
		got[r.Key()] = true
	}
	var out []queue.Position
	for _, p := range after {
		if !got[p.Key()] {
			out = append(out, p)
		}
	}
	return out
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
