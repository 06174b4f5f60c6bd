package outbox

import (
	"context"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// claiming claims new events and passes them on to claimed, until ctx ends.
func (r *Relay) claimLoop(ctx context.Context, claimed chan<- *leasedBatch) {
	var s claimSchedule
	for ctx.Err() == nil {
		r.heartbeat()
		r.step(ctx, &s, claimed)
	}
}

// turn does the next step of the schedule of claims.
func (r *Relay) step(ctx context.Context, s *claimSchedule, claimed chan<- *leasedBatch) {
	now, due, closed := time.Now(), r.followUps.due(), r.pausedTypes()
	r.followUps.setPausedTypes(closed)
	wakeup := false
	select {
	case <-r.wakeups:
		wakeup = true
	default:
	}
	todo, until := s.next(now, due, wakeup, len(closed) > 0 && len(closed) == len(r.circuits))
	switch todo {
	case actRegister:
		r.register(ctx, s)
	case actClaim:
		if !r.inFlight.reserve(byClaim) {
			if wakeup {
				signal(r.wakeups)
			}
			backoff.Sleep(ctx, heartbeatEvery, r.inFlight.roomForClaims)
			return
		}
		if err := r.claimNew(ctx, s, closed, claimed); err != nil {
			r.claimFailed(ctx, s, err)
		}
	case actPause:
		if wakeup {
			signal(r.wakeups)
		}
		backoff.Sleep(ctx, min(time.Until(until), heartbeatEvery), r.followUps.wakeClaims)
	default:
		r.waitForWork(ctx, min(time.Until(until), heartbeatEvery))
	}
}

// closed are the aggregate types whose topics are out.
func (r *Relay) pausedTypes() (kinds []string) {
	for kind, c := range r.circuits {
		if c.open() {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// held notes that the database has not answered a claim.
func (r *Relay) claimFailed(ctx context.Context, s *claimSchedule, err error) {
	failures := s.failed(time.Now())
	r.failures.Store(int64(failures))
	r.log.WarnContext(ctx, "relay is held up, nothing is lost",
		"error", err, "failures", failures, "retry_in_ms", time.Until(s.pausedUntil).Milliseconds())
}

// rest waits, or until there is news.
func (r *Relay) waitForWork(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-r.followUps.wakeClaims:
	case <-r.wakeups:
		signal(r.wakeups) // for turn to see
	}
}

// fresh claims new events. Room for it is reserved.
func (r *Relay) claimNew(ctx context.Context, s *claimSchedule, closed []string, claimed chan<- *leasedBatch) error {
	since, after, alive := r.followUps.take(claimEvents)
	lows := make(map[aggregateKey]queue.TxSnapshot, len(after))
	at, bound := make([]queue.AggregateVersion, len(after)), since
	for i, p := range after {
		at[i], lows[aggregateKey{p.AggregateType, p.AggregateID}], bound = p.AggregateVersion, p.low, queue.Earliest(bound, p.low)
	}
	sent := time.Now()
	// Not cancelled with ctx: a claim that is given up may still commit, after
	// the settling that would have handed it back.
	claiming, done := outlive(ctx, drainTime)
	defer done()
	claim := r.claimLimits(closed, alive)
	c, err := r.queue.ClaimNew(claiming, claim, since, at)
	if err != nil {
		r.inFlight.release()
		r.followUps.noteUnknownLeases()
		r.followUps.giveBack(after)
		return err
	}
	r.dispatch(claimResult{Claimed: c, claim: claim, sent: sent, low: since, lows: lows}, 0, nil, claimed)
	if c.Truncated {
		r.followUps.scheduleScan(bound, sent)
	} else if c.Skipped {
		r.followUps.scheduleScan(bound, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	r.followUps.claimed(c.Seen, bound, closed...)
	r.failures.Store(0)
	s.claimed(sent, len(c.Batches), c.Truncated)
	return nil
}

// subject is an aggregate.
type aggregateKey struct{ kind, id string }

// batch is what one claim took: who claimed, when it was sent, and what none of it was
// visible to: empty if it claimed nothing but retries.
type claimResult struct {
	queue.Claimed

	claim queue.Claim
	sent  time.Time
	low   queue.TxSnapshot
	lows  map[aggregateKey]queue.TxSnapshot // of some; may be nil
	// candidates says that it was taken to choose probes from, beside the room that
	// other claims reserve.
	candidates bool
}

// full reports whether the claim's limits may have cut something: a head, or the end of
// a run.
func (c claimResult) full() bool {
	events, bytes := 0, 0
	for _, r := range c.Batches {
		events, bytes = events+len(r), bytes+r.Bytes()
	}
	return c.Truncated || events >= c.claim.Events || bytes >= c.claim.Bytes
}

// pass gives what was claimed to the publishers, and returns how many probes are among
// it: of a circuit in that state. The room that was reserved is given back.
func (r *Relay) dispatch(b claimResult, state int, probes map[uuid.UUID]bool, claimed chan<- *leasedBatch) (passed int) {
	if !b.candidates {
		r.inFlight.observe(b.Batches)
		r.batchLimit.observe(b.Batches)
	}
	for _, h := range r.inFlight.add(b) {
		if probes[h.events.Head()] {
			h.probe = state
			passed++
		}
		claimed <- h
	}
	return passed
}

// claim returns this relay's limits and name for a claim.
func (r *Relay) claimLimits(closed, alive []string) queue.Claim {
	return queue.Claim{
		Token: r.token, Alive: alive, UnknownLeases: r.followUps.mayHaveUnknownLeases(), Without: closed,
		Aggregates: r.inFlight.aggregateLimit(), Events: claimEvents, PerAggregate: r.batchLimit.limit(), Bytes: claimBytes,
	}
}
