package outbox

import (
	"context"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// turnLoop claims the events of held tenants, until ctx ends. It runs apart from the scan loop,
// because a scan may read for seconds, and may fail again and again. The statements of turnLoop are
// cancelled when flying ends, and not when ctx ends (see claimNew).
func (r *Relay) turnLoop(ctx, flying context.Context, toPublish chan<- *leasedBatch) {
	var s turnSchedule
	for ctx.Err() == nil {
		todo, until := s.next(time.Now(), r.followUps.due())
		if todo != actTurn {
			r.inFlight.withdraw(byTurn)
		}
		switch todo { //nolint:exhaustive // the other action is a turn, which needs room
		case actIdle:
			backoff.Sleep(ctx, time.Until(until), r.followUps.wakeTurns)
			continue
		case actPause:
			backoff.Sleep(ctx, time.Until(until), nil)
			r.followUps.withoutTurns(time.Now())
			continue
		}
		if !r.inFlight.reserve(byTurn) {
			backoff.Sleep(ctx, longestWait, r.inFlight.room[byTurn])
			r.followUps.withoutTurns(time.Now())
			continue
		}
		if err := r.takeTurn(flying, &s, toPublish); err != nil {
			r.inFlight.release()
			r.claimLost(err)
			pause := s.failed(time.Now(), err, r.options.OutageBackoff)
			r.log.WarnContext(ctx, "a turn of a held tenant has failed, nothing is lost",
				"error", err, "failures", s.failures, "retry_in_ms", pause.Milliseconds())
		}
	}
}

// takeTurn makes a claim for the next held tenant. It claims events behind the tenant's published
// events, or events in the next page of the tenant's scan. The caller has reserved room for the
// claim.
func (r *Relay) takeTurn(ctx context.Context, s *turnSchedule, toPublish chan<- *leasedBatch) error {
	all := r.followUps.exclusions()
	held := len(all.held)
	all.held = nil
	claim := r.claimLimits(all)
	now := time.Now()
	r.followUps.releaseCaughtUp(r.inFlight, r.tenants.shared(now), now)
	h, n, after := r.followUps.turn(r.tenants, r.inFlight, len(all.alive)+1)
	if h == nil {
		r.inFlight.release()
		s.turned(now, true, held)
		return nil
	}
	// The limit of aggregates is above the limit of events, so it never makes a claim smaller.
	claim.Tenant, claim.Events, claim.Aggregates = h.name, n, n+1
	var got queue.Claimed
	var err error
	if len(after) > 0 {
		// The limit per aggregate is rounded up. So if every aggregate reaches its limit, the claim
		// is full, which shows that the tenant has not caught up.
		claim.PerAggregate = (n + len(after) - 1) / len(after)
		got, err = r.claimBehind(ctx, h, after, claim, all.life, toPublish)
	} else {
		got, err = r.claimHeldPage(ctx, h, claim, toPublish)
	}
	if err != nil {
		return err
	}
	now = time.Now()
	r.followUps.turned(h, claimResult{Claimed: got, claim: claim}, now)
	s.succeeded()
	s.turned(now, false, held)
	return nil
}

// claimBehind claims the events of a held tenant that follow the published versions in after.
func (r *Relay) claimBehind(
	ctx context.Context, h *heldTenant, after []followUp, claim queue.Claim, in life, toPublish chan<- *leasedBatch,
) (queue.Claimed, error) {
	at, lows, first := versionsOf(after)
	left, sent := datedLow{first, in}, time.Now()
	c, err := r.queue.ClaimNew(ctx, claim, "", at)
	if err != nil {
		r.followUps.turnFailed(h, after)
		return c, err
	}
	got := claimResult{Claimed: c, claim: claim, sent: sent, low: datedLow{life: in}, lows: lows}
	r.dispatch(got, toPublish)
	h.adaptVersions(len(after), got.events())
	if got.events() > 0 || !c.Skipped { // events that could not be claimed are behind the versions, too
		h.adaptPages(got.events())
	}
	var rest []followUp
	if c.Truncated {
		rest = unclaimed(after, c.Batches)
	} else if r.followUps.hasLeft(c, claim.Alive) {
		r.followUps.left(h, left, c.Seen, sent.Add(max(c.FreeIn, jittered(scanEvery))))
	}
	if len(claim.Without) == 0 {
		left = datedLow{}
	}
	r.followUps.turnFollowed(h, rest, left, c.Seen, claim.Without)
	return c, nil
}

// unclaimed returns the versions in after behind which no batch begins.
func unclaimed(after []followUp, batches []queue.Batch) []followUp {
	claimed := map[aggregateKey]bool{}
	for _, b := range batches {
		claimed[aggregateKey{b[0].AggregateType, b[0].AggregateID}] = true
	}
	return slices.DeleteFunc(after, func(p followUp) bool { return claimed[aggregateKey{p.AggregateType, p.AggregateID}] })
}

// claimHeldPage claims the tenant's events in the next page of a held tenant's scan.
func (r *Relay) claimHeldPage(
	ctx context.Context, h *heldTenant, claim queue.Claim, toPublish chan<- *leasedBatch,
) (queue.Claimed, error) {
	sent, rows := time.Now(), h.pageRows(claim.Events)
	p, err := r.queue.Scan(ctx, claim, h.parts[0], rows)
	if err != nil {
		return p.Claimed, err
	}
	got := claimResult{Claimed: p.Claimed, claim: claim, sent: sent, low: h.scanning}
	r.dispatch(got, toPublish)
	h.adaptRows(rows, p, got.events(), claim.Events)
	if !p.Truncated && r.followUps.hasLeft(p.Claimed, claim.Alive) {
		r.followUps.left(h, h.scanning, p.Seen, sent.Add(max(p.FreeIn, jittered(scanEvery))))
	}
	r.followUps.turnScanned(h, p, claim.Without)
	return p.Claimed, nil
}

// pageRows returns how many rows the next page reads, for a turn that may claim this many events.
func (h *heldTenant) pageRows(events int) int { return min(turnRows, max(h.rows, events)) }

// adaptRows sets how many rows the next page of the scan reads. rows is how many rows the last page
// read. claimed is how many events its turn claimed, and limit is how many it might have claimed. A
// truncated page is read again.
func (h *heldTenant) adaptRows(rows int, p queue.Page, claimed, limit int) {
	switch {
	case p.Truncated:
		h.rows = rows / 2
	case 2*claimed < limit && !h.rereads:
		h.rows = 2 * rows // most of the rows are not the tenant's
	}
	h.rereads = p.Truncated
}

// adaptVersions sets how many published versions the next claim looks behind. taken is how many
// versions the last claim looked behind, and claimed is how many events it found there. If it found
// none, the number doubles, because such a claim of many versions costs little more than a claim of
// one.
func (h *heldTenant) adaptVersions(taken, claimed int) {
	h.versions = 0
	if claimed == 0 {
		h.versions = min(turnRows, 2*taken)
	}
}

// maxPages limits how many turns in a row read pages of a held tenant's scan.
const maxPages = 8

// adaptPages sets how many turns read pages before the next claim of events behind published versions.
// claimed is how many events the last such claim took. If it took any, one page follows. If it took
// none, the number of pages doubles. Where the tenant writes one event for each aggregate, no event is
// behind a published version. Then each turn that looks there leaves its part of the rate to the next
// turn, which is twice as large, and other tenants' events wait behind large turns.
func (h *heldTenant) adaptPages(claimed int) {
	h.pages = min(maxPages, 2*max(1, h.pages))
	if claimed > 0 {
		h.pages = 1
	}
	h.pagesLeft = h.pages
}
