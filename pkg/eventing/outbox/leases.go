package outbox

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// renew extends the leases that have used up a third of their time. If another relay has taken over
// the lease of a batch, no further request of the batch starts. If another transaction has locked
// the row that has a lease, the lease stays as it was.
func (r *Relay) renew(ctx context.Context) {
	r.expireHandovers(time.Now())
	due := r.inFlight.dueForRenewal()
	if len(due) == 0 {
		return
	}
	sent := time.Now()
	held, lost, err := r.queue.Renew(ctx, r.token, slices.Collect(maps.Keys(due)))
	if err != nil {
		r.log.WarnContext(ctx, "leases not renewed", "error", err)
		return
	}
	for _, id := range held {
		due[id].renewed(sent)
	}
	for _, id := range lost {
		due[id].extend(sent)
	}
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

// firstOf returns the heads without those of second settlements. If the lease of a second
// settlement is gone, either the first settlement of the batch was written under that lease and has
// ended it, or another relay has the batch. In both cases nothing was lost.
func firstOf(written []*unsettled, heads []uuid.UUID) []uuid.UUID {
	return slices.DeleteFunc(heads, func(head uuid.UUID) bool {
		return slices.ContainsFunc(written, func(u *unsettled) bool { return u.mayBeGone && u.batch.events.Head() == head })
	})
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
