package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// scanLoop claims the events that claims of new events do not find: retries that are due, events
// that dead relays had leased, and events that a claim had to skip. The statements of scanLoop may
// be slow and may fail, but no new event waits for these statements. The statements are cancelled
// when flying ends, and not when ctx ends (see claimNew).
func (r *Relay) scanLoop(ctx, flying context.Context, toPublish chan<- *leasedBatch) {
	s := newScanSchedule()
	for ctx.Err() == nil {
		due := r.followUps.due()
		due.retriesWait = r.retriesWait()
		todo, until := s.next(time.Now(), due)
		if todo == actIdle {
			// The loop may have waited for room to claim retries, which may not be claimed now.
			r.inFlight.withdraw(byScan)
		}
		switch todo { //nolint:exhaustive // the other actions are claims, which need room
		case actIdle:
			backoff.Sleep(ctx, time.Until(until), r.followUps.wakeScans)
			continue
		case actStartScan:
			s.started(r.followUps.beginScan())
			continue
		}
		if !r.inFlight.reserve(byScan) {
			backoff.Sleep(ctx, longestWait, r.inFlight.room[byScan])
			continue
		}
		if err := r.scan(flying, s, todo, toPublish); err != nil {
			r.scanFailed(ctx, s, todo, err)
		}
	}
}

// scanFailed releases the room of a failed claim. If the failed claim was a claim of retries,
// scanFailed makes the next claim of retries due after the pause, because the failed claim has
// cleared the due time of retries.
func (r *Relay) scanFailed(ctx context.Context, s *scanSchedule, todo action, err error) {
	r.inFlight.release()
	r.claimLost(err)
	pause := s.outages[todo].failed(time.Now(), err, r.options.OutageBackoff)
	if todo == actRetries {
		s.retryAt = s.outages[todo].pausedUntil
	}
	r.log.WarnContext(ctx, "a scan of the outbox has failed, new events leave all the same",
		"error", err, "failures", s.outages[todo].failures, "retry_in_ms", pause.Milliseconds())
}

// retriesWait reports whether due retries must wait, because too many retries are on their way to
// the broker while several tenants are active.
func (r *Relay) retriesWait() bool { return r.tenants.shared(time.Now()) && r.inFlight.retriesWait() }

// scan makes the claim that the action todo names. The caller has reserved room for the claim.
func (r *Relay) scan(ctx context.Context, s *scanSchedule, todo action, toPublish chan<- *leasedBatch) error {
	sent := time.Now()
	without := r.followUps.exclusions()
	claim := r.claimLimits(without)
	// A later claim of retries finds the retries that are skipped here.
	claim.SkipRetries = r.retriesWait()
	switch todo { //nolint:exhaustive // the other actions claim nothing
	case actRetries:
		r.followUps.forgetRetries()
		got, in, err := r.queue.ClaimRetries(ctx, claim)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: got, claim: claim, sent: sent, low: datedLow{life: without.life}, retries: true}, toPublish)
		s.retried(sent, got.Truncated, in)
		r.noteLocked(ctx, &s.retryLocks, isLocked(got))
	case actScanPage:
		p, err := r.queue.Scan(ctx, claim, s.parts[0], scanRows)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: s.low}, toPublish)
		r.followUps.pageScanned(s.parts[0].Through(p), without)
		if !p.Truncated && r.followUps.hasLeft(p.Claimed, without.alive) {
			r.followUps.scheduleScan(s.low, sent.Add(max(p.FreeIn, jittered(scanEvery))))
		}
		if len(without.held) > 0 && len(p.Batches) == 0 {
			s.pausePages(sent, time.Now())
		}
		if s.paged(p) {
			r.followUps.endScan()
			r.noteLocked(ctx, &s.scanLocks, s.scanMetLocks)
		}
	case actSweepPage:
		p, err := r.queue.Scan(ctx, claim, s.sweep[0], sweepRows)
		if err != nil {
			return err
		}
		r.dispatch(claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: datedLow{queue.Beginning, without.life}}, toPublish)
		s.swept(sent, p)
	}
	return nil
}
