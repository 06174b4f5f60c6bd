package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

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
	now, n, closed := time.Now(), r.agenda.news(), r.closed()
	r.agenda.outage(closed)
	woken := false
	select {
	case <-r.woken:
		woken = true
	default:
	}
	todo, until := s.next(now, n, woken, len(closed) > 0 && len(closed) == len(r.circuits))
	switch todo {
	case join:
		r.join(ctx, s)
	case claim:
		if !r.flight.reserve(byClaim) {
			if woken {
				signal(r.woken)
			}
			backoff.Sleep(ctx, beatEvery, r.flight.landed)
			return
		}
		if err := r.fresh(ctx, s, closed, claimed); err != nil {
			r.held(ctx, s, err)
		}
	case sit:
		if woken {
			signal(r.woken)
		}
		backoff.Sleep(ctx, min(time.Until(until), beatEvery), r.agenda.told)
	default:
		r.rest(ctx, min(time.Until(until), beatEvery))
	}
}

// closed are the aggregate types whose topics are out.
func (r *Relay) closed() (kinds []string) {
	for kind, c := range r.circuits {
		if c.open() {
			kinds = append(kinds, kind)
		}
	}
	return kinds
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
	r.pass(batch{Claimed: c, who: who, sent: sent, low: since, lows: lows}, 0, nil, claimed)
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

// subject is an aggregate.
type subject struct{ kind, id string }

// batch is what one claim took: who claimed, when it was sent, and what none of it was
// visible to: empty if it claimed nothing but retries.
type batch struct {
	queue.Claimed

	who  queue.Claim
	sent time.Time
	low  queue.Snapshot
	lows map[subject]queue.Snapshot // of some; may be nil
	// candidates says that it was taken to choose probes from, beside the room that
	// other claims reserve.
	candidates bool
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
// it: of a circuit in that state. The room that was reserved is given back.
func (r *Relay) pass(b batch, state int, probes map[uuid.UUID]bool, claimed chan<- *hold) (passed int) {
	if !b.candidates {
		r.flight.learn(b.Runs)
		r.reach.learn(b.Runs)
	}
	for _, h := range r.flight.add(b) {
		if probes[h.run.Head()] {
			h.probe = state
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
