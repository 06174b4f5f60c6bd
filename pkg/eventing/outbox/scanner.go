package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// scanLoop finds the events that the claims cannot see: retries that are due, events that
// dead relays had leased, events that a claim had to leave. Its statements may be slow and
// may fail; no new event waits for them. They end with flying, as in claimNew.
func (r *Relay) scanLoop(ctx, flying context.Context, claimed chan<- *leasedBatch) {
	s := newScanSchedule()
	for ctx.Err() == nil {
		todo, until := s.next(time.Now(), r.followUps.due())
		switch todo { //nolint:exhaustive // the other actions are claims, which need room
		case actIdle:
			backoff.Sleep(ctx, time.Until(until), r.followUps.wakeScans)
			continue
		case actPause:
			backoff.Sleep(ctx, time.Until(until), nil)
			continue
		case actStartScan:
			s.started(r.followUps.beginScan())
			continue
		}
		if !r.inFlight.reserve(byScan) {
			backoff.Sleep(ctx, heartbeatEvery, r.inFlight.roomForScans)
			continue
		}
		if err := r.scan(flying, s, todo, claimed); err != nil {
			r.inFlight.release()
			r.followUps.noteUnknownLeases()
			pause := s.failed(time.Now(), r.options.OutageBackoff)
			r.log.WarnContext(ctx, "a scan of the outbox has failed, new events leave all the same",
				"error", err, "failures", s.failures, "retry_in_ms", pause.Milliseconds())
		}
	}
}

// scan makes the claim that is due. Room for it is reserved.
func (r *Relay) scan(ctx context.Context, s *scanSchedule, todo action, claimed chan<- *leasedBatch) error {
	sent := time.Now()
	paused, alive, held := r.followUps.exclusions()
	claim := r.claimLimits(paused, alive, held)
	switch todo { //nolint:exhaustive // the other actions claim nothing
	case actRetries:
		r.followUps.forgetRetries()
		got, in, err := r.queue.ClaimRetries(ctx, claim)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: got, claim: claim, sent: sent}, claimed)
		s.retried(sent, got.Truncated, in)
	case actScanPage:
		p, err := r.queue.Scan(ctx, claim, s.parts[0], scanRows)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: s.low}, claimed)
		r.followUps.pageScanned(paused, held)
		if p.Skipped && !p.Truncated {
			r.followUps.scheduleScan(s.low, sent.Add(max(p.FreeIn, jittered(scanEvery))))
		}
		if s.paged(p) {
			r.followUps.endScan()
		}
	case actSweepPage:
		p, err := r.queue.Scan(ctx, claim, s.sweep[0], sweepRows)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: queue.Beginning}, claimed)
		s.swept(sent, p)
	case actTurn:
		return r.takeTurn(ctx, s, claim, claimed)
	}
	return nil
}

// takeTurn makes a claim for the held tenant that is next: among the events behind its
// published ones, or in a page of its scan. Room for it is reserved.
func (r *Relay) takeTurn(ctx context.Context, s *scanSchedule, claim queue.Claim, claimed chan<- *leasedBatch) error {
	now := time.Now()
	r.followUps.releaseCaughtUp(r.inFlight, r.tenants.shared(now), now)
	n := r.tenants.turn(len(claim.Alive)+1, now)
	var h *heldTenant
	var after []followUp
	if n > 0 {
		h, after = r.followUps.turn(n)
	}
	if h == nil {
		r.inFlight.release()
		s.turned(now, true)
		return nil
	}
	// One aggregate more than events: the number of aggregates never ends the claim.
	claim.Tenant, claim.WithoutTenants, claim.Events, claim.Aggregates = h.name, nil, n, n+1
	var got queue.Claimed
	var err error
	if len(after) > 0 {
		claim.PerAggregate = n / len(after)
		got, err = r.claimBehind(ctx, h, after, claim, claimed)
	} else {
		got, err = r.claimHeldPage(ctx, h, claim, claimed)
	}
	if err != nil {
		return err
	}
	events := 0
	for _, b := range got.Batches {
		events += len(b)
	}
	now = time.Now()
	if events >= n || got.Truncated {
		h.behindAt = now
	}
	r.tenants.took(events, now)
	s.succeeded()
	s.turned(now, events >= n)
	return nil
}

// claimBehind claims events behind published ones of a held tenant.
func (r *Relay) claimBehind(
	ctx context.Context, h *heldTenant, after []followUp, claim queue.Claim, claimed chan<- *leasedBatch,
) (queue.Claimed, error) {
	at, lows, bound := versionsOf(after)
	sent := time.Now()
	c, err := r.queue.ClaimNew(ctx, claim, "", at)
	if err != nil {
		r.followUps.turnFailed(h, after)
		return c, err
	}
	r.dispatch(claimResult{Claimed: c, claim: claim, sent: sent, lows: lows}, claimed)
	if c.Skipped {
		r.followUps.left(h, bound, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	if !c.Truncated && len(claim.Without) == 0 {
		bound = ""
	}
	r.followUps.turnFollowed(h, bound, claim.Without)
	return c, nil
}

// claimHeldPage claims in the next page of a held tenant's scan.
func (r *Relay) claimHeldPage(
	ctx context.Context, h *heldTenant, claim queue.Claim, claimed chan<- *leasedBatch,
) (queue.Claimed, error) {
	sent := time.Now()
	p, err := r.queue.Scan(ctx, claim, h.parts[0], turnRows)
	if err != nil {
		return p.Claimed, err
	}
	r.dispatch(claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: h.scanningLow}, claimed)
	if p.Skipped && !p.Truncated {
		r.followUps.left(h, h.scanningLow, sent.Add(max(p.FreeIn, jittered(scanEvery))))
	}
	r.followUps.turnScanned(h, p, claim.Without)
	return p.Claimed, nil
}
