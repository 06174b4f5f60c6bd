package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// unsettled is a result that is to be written back.
type unsettled struct {
	publishResult

	settlement queue.Settlement
	tries      int
	notBefore  time.Time // when to try next
}

// weight counts its events against the settler's limit: at least one.
func (u *unsettled) weight() int { return max(1, u.settlement.Published) }

// settler writes results back. Only the settling goroutine uses it. The batches of its
// results are still in flight, which bounds their number.
type settler struct {
	*Relay

	waiting []*unsettled
	// limit is how many events one statement marks. It follows the database: half as many
	// after a statement that ran out of time, twice as many after a quick one.
	limit int
}

const (
	// renewLook is how often a relay looks for leases to renew. It is short enough that
	// there is still time for a renewal after a statement that ran into its time limit.
	renewLook = renewEvery / 4
	// quick is the duration up to which the next statement may have more to do.
	quick = queue.Timeout / 10
)

// settleLoop writes results back, all that have arrived meanwhile in one statement. It ends
// when results is closed and nothing is left, or when closing ends. Between two statements
// it renews leases. So settling and renewing never wait for each other's row locks, and a
// statement that keeps failing does not cost the other leases.
func (r *Relay) settleLoop(ctx, closing context.Context, results <-chan publishResult) {
	s := &settler{Relay: r, limit: maxEvents}
	renew := time.NewTicker(renewLook)
	defer renew.Stop()
	retry := time.NewTimer(0)
	defer retry.Stop()
	for results != nil || len(s.waiting) > 0 {
		select {
		case first, ok := <-results:
			if !ok {
				results = nil
				break
			}
			for _, l := range r.gather(first, results) {
				s.waiting = append(s.waiting, &unsettled{publishResult: l, settlement: r.settlement(ctx, l)})
			}
		case <-retry.C:
		case <-renew.C:
			r.renew(closing)
		case <-closing.Done(): // the rest stays leased until the leases run out
			return
		}
		s.settleDue(ctx, closing, renew.C)
		retry.Reset(s.untilNext())
	}
}

// settleDue settles all results that are due, in as many statements as it takes.
func (s *settler) settleDue(ctx, closing context.Context, renew <-chan time.Time) {
	for batch := s.take(); len(batch) > 0 && closing.Err() == nil; batch = s.take() {
		s.settle(ctx, closing, batch)
		select {
		case <-renew:
			s.renew(closing)
		default:
		}
	}
}

// take removes results from waiting and returns them for the next statement: those that are
// due, with no more events than the limit.
func (s *settler) take() (part []*unsettled) {
	now, weight := time.Now(), 0
	s.waiting = slices.DeleteFunc(s.waiting, func(u *unsettled) bool {
		if u.notBefore.After(now) || len(part) > 0 && weight+u.weight() > s.limit {
			return false
		}
		part, weight = append(part, u), weight+u.weight()
		return true
	})
	if len(part) == 1 && weight > s.limit {
		// One batch is over the limit by itself. Its unmarked rest loses its lease and is
		// sent again: a repeat, because the statement would never pass otherwise.
		part[0].settlement = queue.Settlement{Batch: part[0].settlement.Batch, Published: s.limit}
	}
	return part
}

// untilNext is how long until a result is due.
func (s *settler) untilNext() time.Duration {
	wait := queue.LeaseTime
	for _, u := range s.waiting {
		wait = min(wait, time.Until(u.notBefore))
	}
	return max(0, wait)
}

// settle writes results back. A result that could not be written is tried again while its
// lease lasts. When the lease runs out, its events are sent again.
func (s *settler) settle(ctx, closing context.Context, part []*unsettled) {
	settlements, weight := make([]queue.Settlement, len(part)), 0
	for i, u := range part {
		settlements[i] = u.settlement
		weight += u.weight()
	}
	start := time.Now()
	done, err := s.queue.Settle(closing, s.token, settlements)
	if err != nil {
		s.failed(ctx, part, weight, err)
		return
	}
	if time.Since(start) < quick {
		s.limit = min(maxEvents, 2*s.limit)
	}
	var written, locked []*unsettled
	for _, u := range part {
		if slices.Contains(done.Locked, u.batch.events.Head()) {
			locked = append(locked, u)
		} else {
			written = append(written, u)
		}
	}
	s.metrics.settled(ctx, written, done.Lost)
	s.followUps.settled(written, done.Followed)
	s.observeRefusals(ctx, written)
	s.forget(written)
	if len(locked) > 0 {
		oldest := locked[0].batch.events[0]
		s.log.WarnContext(oldest.InTrace(ctx), "rows of published events are locked by somebody else",
			append(oldest.LogAttrs(), "aggregates", len(locked))...)
		s.retryLater(locked)
	}
}

// failed tries results again that could not be written: at once and in halves if the
// statement's time was too short for them, else later.
func (s *settler) failed(ctx context.Context, part []*unsettled, weight int, err error) {
	s.log.WarnContext(ctx, "relay cannot mark what it published", "error", err, "events", weight, "attempt", part[0].tries+1)
	if queue.IsTimeout(err) && weight > 1 {
		s.limit = max(1, weight/2)
		for _, u := range part { // at once: a half of them may pass in time
			u.notBefore = time.Now()
		}
		s.keepLeased(part)
		return
	}
	s.retryLater(part)
}

// retryLater tries results again after a pause.
func (s *settler) retryLater(part []*unsettled) {
	for _, u := range part {
		u.tries++
		u.notBefore = time.Now().Add(outagePause.Delay(u.tries))
	}
	s.keepLeased(part)
}

// keepLeased puts the results whose leases still last back into waiting. It gives up the
// others: a scan finds their events when the leases have run out.
func (s *settler) keepLeased(part []*unsettled) {
	var lost []*unsettled
	for _, u := range part {
		if u.batch.validFor(0) {
			s.waiting = append(s.waiting, u)
		} else {
			lost = append(lost, u)
			s.followUps.noteUnknownLeases() // a renewal may have been committed
			s.followUps.scheduleScan(u.batch.low, time.Now().Add(queue.LeaseTime))
		}
	}
	s.forget(lost)
}

func (s *settler) forget(results []*unsettled) {
	batches := make([]*leasedBatch, len(results))
	for i, u := range results {
		batches[i] = u.batch
	}
	s.inFlight.remove(batches)
}

// renew extends the leases that have lasted for a third of their time. A batch whose lease
// another relay has taken over starts no further request. A row that another transaction
// has locked keeps its lease as it was.
func (r *Relay) renew(ctx context.Context) {
	due := r.inFlight.dueForRenewal()
	if len(due) == 0 {
		return
	}
	heads := make([]uuid.UUID, 0, len(due))
	for id := range due {
		heads = append(heads, id)
	}
	sent := time.Now()
	held, lost, err := r.queue.Renew(ctx, r.token, heads)
	if err != nil {
		r.log.WarnContext(ctx, "leases not renewed", "error", err)
		return
	}
	for _, id := range held {
		due[id].extend(sent.Add(queue.LeaseTime))
	}
	for _, id := range lost {
		due[id].extend(sent)
	}
}

// gatherTime is how long a result waits for others at most.
const gatherTime = 2 * time.Millisecond

// gather adds the results that have arrived too. While most events in flight still have no
// result, it waits a moment: a statement costs the same for a few.
func (r *Relay) gather(first publishResult, results <-chan publishResult) []publishResult {
	batch, events := []publishResult{first}, len(first.batch.events)
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	for 2*events < r.inFlight.total() || len(results) > 0 {
		select {
		case l, ok := <-results:
			if !ok {
				return batch
			}
			batch, events = append(batch, l), events+len(l.batch.events)
		case <-timer.C:
			return batch
		}
	}
	return batch
}
