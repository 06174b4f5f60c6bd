package outbox

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// claimLoop claims new events and sends them to the channel toPublish, until ctx ends.
func (r *Relay) claimLoop(ctx context.Context, toPublish chan<- *leasedBatch) {
	var s claimSchedule
	for ctx.Err() == nil {
		r.heartbeat()
		r.step(ctx, &s, toPublish)
	}
}

// step takes the next action of the claim schedule.
func (r *Relay) step(ctx context.Context, s *claimSchedule, toPublish chan<- *leasedBatch) {
	now, due, paused := time.Now(), r.followUps.due(), r.pausedTypes()
	r.followUps.setPausedTypes(paused)
	wakeup := false
	select {
	case <-r.wakeups:
		wakeup = true
	default:
	}
	todo, until := s.next(now, due, wakeup, len(paused) > 0 && len(paused) == len(r.pauses))
	if todo != actClaim {
		r.inFlight.withdraw(byClaim)
	}
	switch todo {
	case actRegister:
		r.register(ctx, s)
	case actClaim:
		r.claimWithRoom(ctx, s, paused, wakeup, toPublish)
	case actPause:
		if wakeup {
			signal(r.wakeups)
		}
		backoff.Sleep(ctx, min(time.Until(until), longestWait), r.followUps.wakeClaims)
	default:
		r.waitForWork(ctx, min(time.Until(until), longestWait))
	}
}

// claimWithRoom claims new events if there is room for them. Otherwise it waits until there may
// be room.
func (r *Relay) claimWithRoom(ctx context.Context, s *claimSchedule, paused []string, wakeup bool, toPublish chan<- *leasedBatch) {
	if !r.inFlight.reserve(byClaim) {
		if wakeup {
			signal(r.wakeups)
		}
		backoff.Sleep(ctx, longestWait, r.inFlight.room[byClaim])
		return
	}
	if err := r.claimNew(ctx, s, paused, toPublish); err != nil {
		r.claimFailed(ctx, s, err)
	}
}

// pausedTypes returns the aggregate types of paused topics.
func (r *Relay) pausedTypes() (kinds []string) {
	for kind, p := range r.pauses {
		if p.paused() {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// claimFailed plans a pause after a failed claim. The next claim is due when the pause ends,
// because the failed claim has consumed a wake-up.
func (r *Relay) claimFailed(ctx context.Context, s *claimSchedule, err error) {
	if ctx.Err() != nil { // the relay ends, and the claim failed for that reason
		return
	}
	pause := s.failed(time.Now(), err, r.options.OutageBackoff)
	s.pollAt = s.pausedUntil
	r.failures.Store(int64(s.failures))
	r.log.WarnContext(ctx, "relay is held up, nothing is lost",
		"error", err, "failures", s.failures, "held_up_ms", time.Since(s.since).Milliseconds(), "retry_in_ms", pause.Milliseconds())
}

// claimLost notes that a claim has failed. If its error is queue.ErrAnotherServer, the server has
// refused the claim, and a heartbeat must meet that server before the next claim. After any other error
// the claim may have been committed nevertheless.
func (r *Relay) claimLost(err error) {
	if errors.Is(err, queue.ErrAnotherServer) {
		signal(r.wakeHeartbeats)
	} else {
		r.followUps.noteUnknownLeases()
	}
}

// waitForWork waits until there may be something to claim, for at most the duration wait.
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
		signal(r.wakeups) // step reads the signal
	}
}

// claimNew claims new events and the events behind published ones. The caller has reserved room
// for them.
func (r *Relay) claimNew(ctx context.Context, s *claimSchedule, paused []string, toPublish chan<- *leasedBatch) error {
	// The claim is not cancelled with ctx, because a cancelled claim may still commit after
	// the relay has handed back its leases.
	claiming, done := outlive(ctx, r.drainFor)
	defer done()
	return r.claimWithin(claiming, s, paused, toPublish)
}

// claimWithin is claimNew with the context claiming, which bounds the statement.
func (r *Relay) claimWithin(claiming context.Context, s *claimSchedule, paused []string, toPublish chan<- *leasedBatch) error {
	todo := r.followUps.take(r.claimEvents(), paused...)
	at, lows, first := versionsOf(todo.after)
	from := datedLow{queue.Earliest(first, todo.seen), todo.life}
	sent := time.Now()
	claim := r.claimLimits(todo.exclusions)
	c, err := r.queue.ClaimNew(claiming, claim, todo.seen, at)
	if err != nil {
		r.inFlight.release()
		r.claimLost(err)
		r.followUps.giveBack(todo)
		return err
	}
	r.dispatch(claimResult{Claimed: c, claim: claim, sent: sent, low: datedLow{todo.seen, todo.life}, lows: lows}, toPublish)
	if c.Truncated {
		r.followUps.scheduleScan(from, sent)
	} else if r.followUps.hasLeft(c, todo.alive) {
		r.followUps.scheduleScan(from, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	r.followUps.claimEnded(c, todo, from.snapshot)
	r.failures.Store(0)
	s.claimed(sent, len(c.Batches), c.Truncated)
	return nil
}

// claimResult is the result of one claim.
type claimResult struct {
	queue.Claimed

	claim queue.Claim // the limits of the claim
	sent  time.Time   // when the claim was sent
	// low is a low of the claimed events (see "Lows and lives" in doc.go). Its snapshot is empty if the
	// claim looked only for retries, or only for events behind published versions.
	low datedLow
	// lows has the earliest low of the published versions of each aggregate behind which the claim looked.
	// These lows are of the life in low. lows is nil if the claim did not look behind versions.
	lows map[aggregateKey]queue.TxSnapshot
	// retries is true if the claim looked for retries.
	retries bool
	// candidates is true if the relay chooses probes from the claimed events. Such events do not use the
	// room that other claims reserve.
	candidates bool
	// chosen has the heads of those claimed batches that are probes.
	chosen map[uuid.UUID]bool
	// state is the state of the topic's pause in which the probes were chosen.
	state int
}

// full reports whether the claim's limits may have left out a head or the end of a batch.
func (c claimResult) full() bool {
	bytes := 0
	for _, r := range c.Batches {
		bytes += r.Bytes()
	}
	return c.Truncated || c.events() >= c.claim.Events || bytes >= c.claim.Bytes
}

// cutShort reports whether the limit of events of one aggregate may have cut a batch short.
func (c claimResult) cutShort() bool {
	return slices.ContainsFunc(c.Batches, func(b queue.Batch) bool { return len(b) >= c.claim.PerAggregate })
}

func (c claimResult) events() (n int) {
	for _, b := range c.Batches {
		n += len(b)
	}
	return n
}

// dispatch sends the batches of a claim to the publishers. It counts the batches as in flight, and
// frees the room that was reserved for the claim. It also holds tenants that the claim shows to be busy
// (see holdBusy). dispatch returns how many of the batches are probes.
func (r *Relay) dispatch(b claimResult, toPublish chan<- *leasedBatch) (probes int) {
	added := r.inFlight.add(b)
	if !b.candidates {
		if b.claim.Tenant == "" {
			r.claimSize.observe(b.Batches, b.claim.Events)
			r.holdBusy(b.Batches, len(b.claim.Alive)+1)
		} else {
			r.tenants.count(b.Batches, len(b.claim.Alive)+1, time.Now())
		}
	}
	for _, batch := range added {
		if b.chosen[batch.events.Head()] {
			batch.probe = b.state
			probes++
		}
		toPublish <- batch
	}
	return probes
}

// claimLimits returns this relay's token and the limits of its next claim.
func (r *Relay) claimLimits(without exclusions) queue.Claim {
	aggregates, versions := r.claimSize.limits()
	events := r.claimEvents()
	return queue.Claim{
		Token: r.token, Server: without.life.server(), Alive: without.alive, Gone: without.gone, Without: without.paused,
		UnknownLeases: r.followUps.mayHaveUnknownLeases(),
		Aggregates:    min(aggregates, events+1), Events: events, PerAggregate: versions, Bytes: claimBytes, WithoutTenants: without.held,
	}
}

// claimEvents returns the largest number of events that the next claim may take.
func (r *Relay) claimEvents() int {
	if !r.tenants.shared(time.Now()) {
		return claimEvents
	}
	return max(fewEvents, min(sharedEvents, r.inFlight.roomOfAll()))
}
