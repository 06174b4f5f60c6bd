package outbox

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publishResult is a batch that has been sent, with the result of publishing it.
type publishResult struct {
	batch  *leasedBatch
	report report
}

// settlement turns a result into the settlement that is written into the table.
func (r *Relay) settlement(ctx context.Context, p publishResult) queue.Settlement {
	o := queue.Settlement{Batch: p.batch.events, Published: p.report.published}
	switch {
	case p.report.err == nil || p.report.published == len(p.batch.events):
	case p.report.refused:
		o.Failure = r.refuse(ctx, p.batch.events[o.Published], p.report.err)
	case ctx.Err() == nil: // otherwise the shutdown may have caused the error
		o.Failure = &queue.Failure{Reason: p.report.err.Error(), RetryIn: p.report.wait}
	}
	return o
}

// refuse returns the failure of a refused event. The event is retried, or parked if this was its
// last attempt.
func (r *Relay) refuse(ctx context.Context, e queue.Event, reason error) *queue.Failure {
	attempt := e.Refusals + 1
	park := attempt >= r.options.MaxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if p := r.pauses[e.AggregateType]; park && p != nil {
		p.forget(e.Key())
	}
	r.log.Log(e.InTrace(ctx), level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Failure{Reason: reason.Error(), RetryIn: r.options.RefusalBackoff.Delay(attempt), Refused: true, Park: park}
}

// This file has the results that are not written yet, and handles the results that could not be
// written.

// unsettled is a result of publishing that is not yet written into the table.
type unsettled struct {
	publishResult

	settlement queue.Settlement
	// mayBeGone is true for the second settlement of a batch (see removeSettled), and for the search for a
	// handover's event, which may not exist. If the lease of such a result is gone, nothing is lost.
	mayBeGone bool
	tries     int
	notBefore time.Time // when to try next
}

// weight is how much the result counts against the settler's limit. It is the number of published
// events, or 1 if no event was published.
func (u *unsettled) weight() int { return max(1, u.settlement.Published) }

// firstOf returns the heads without those of second settlements. If the lease of a second
// settlement is gone, either the first settlement of the batch was written under that lease and has
// ended it, or another relay has the batch. In both cases nothing was lost.
func firstOf(written []*unsettled, heads []uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(heads, func(head uuid.UUID) bool {
		return slices.ContainsFunc(written, func(u *unsettled) bool { return u.mayBeGone && u.batch.events.Head() == head })
	})
}

// lost schedules a scan for the results whose leases were lost, because it is unknown whether
// another relay looks for their events.
func (s *settler) lost(ctx context.Context, written []*unsettled, heads []uuid.UUID) {
	for _, u := range written {
		if slices.Contains(heads, u.batch.events.Head()) {
			s.followUps.scanFor(u.batch, time.Now())
		}
	}
	if len(heads) > 0 {
		s.log.WarnContext(ctx, "leases were lost, their events may be sent again", "aggregates", len(heads), "event_id", heads[0])
	}
}

// failed schedules results that could not be written for another try. If the statement ran out of
// time, the results are tried again at once, half as many in a statement. Otherwise they are tried
// again after a pause.
func (s *settler) failed(ctx context.Context, part []*unsettled, weight int, err error) {
	s.log.WarnContext(ctx, "relay cannot mark what it published", "error", err, "events", weight, "attempt", part[0].tries+1)
	if queue.IsTimeout(err) && weight > 1 {
		s.limit = max(1, weight/2)
		s.keepLeased(part) // the results stay due, because half of them may take little enough time
		return
	}
	s.retryLater(part)
}

// retryLater schedules results for another try after a pause.
func (s *settler) retryLater(part []*unsettled) {
	for _, u := range part {
		u.tries++
		u.notBefore = time.Now().Add(outagePause.Delay(u.tries))
	}
	s.keepLeased(part)
}

// keepLeased puts the results whose leases still last back into waiting. It gives up the
// results whose leases have run out, and schedules a scan that finds their events.
func (s *settler) keepLeased(part []*unsettled) {
	var lost []*unsettled
	for _, u := range part {
		if u.batch.unresolved != nil {
			u.batch.unresolved.leaseUncertain = true
		}
		switch {
		case u.batch.validFor(0):
			s.waiting = append(s.waiting, u)
		case u.batch.unresolved != nil && s.inFlight.isOpen(u.batch.unresolved): // the relay looks for the event again
			lost = append(lost, u)
		default:
			lost = append(lost, u)
			s.followUps.noteUnknownLeases() // a renewal that failed may have been committed
			s.followUps.scanFor(u.batch, time.Now().Add(queue.LeaseTime))
		}
	}
	s.removeSettled(lost)
}

// removeSettled removes the batches of results from the batches in flight. If a claim has found a batch
// again, removeSettled hands the batch back first, because there may be no publisher for the lease that
// this claim took.
func (s *settler) removeSettled(results []*unsettled) {
	for _, u := range results {
		if b := u.batch; !s.inFlight.remove(b) {
			s.waiting = append(s.waiting, &unsettled{
				publishResult: publishResult{batch: b}, settlement: queue.Settlement{Batch: b.events}, mayBeGone: true,
			})
		}
	}
	s.inFlight.signalRoom()
}
