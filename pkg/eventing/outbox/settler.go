package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// landing is a hold whose publishing has ended.
type publishResult struct {
	batch  *leasedBatch
	report report
}

// unsettled is a landing that is to be written back.
type unsettled struct {
	publishResult

	settlement queue.Settlement
	tries      int
	notBefore  time.Time // not before
}

// weight is how much of a statement's time it takes.
func (u *unsettled) weight() int { return max(1, u.settlement.Published) }

// settler writes back the landings. Only the settling goroutine uses it; the landings
// that it keeps are still in flight, which bounds them.
type settler struct {
	*Relay

	waiting []*unsettled
	// most is how many events one statement marks. It follows the database: half as
	// many after a statement that ran out of time, twice as many after a quick one.
	limit int
}

const (
	// renewLook is how often a relay looks for leases to renew: often enough that a
	// statement which runs out of its time beside it leaves time for one that renews.
	renewLook = renewEvery / 4
	// quick is when a statement may be given more to do.
	quick = queue.Timeout / 10
)

// settling writes back landings, all that arrived meanwhile in one statement, until
// landings is closed and nothing is left, or closing ends. Between two statements it
// renews leases: the two never wait for each other's row locks, and a statement that
// fails again and again does not cost the leases of the rest.
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
		case <-closing.Done(): // the rest stays leased until that runs out
			return
		}
		s.settleDue(ctx, closing, renew.C)
		retry.Reset(s.untilNext())
	}
}

// settleDue settles all landings that are due, in as many statements as it takes.
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

// take removes from waiting the landings for the next statement: those that are due, as
// many as one may have.
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
		// One run that does not fit by itself. Its unmarked rest is not leased any
		// more, and is sent again: a repeat, where the other choice is to get nowhere.
		part[0].settlement = queue.Settlement{Batch: part[0].settlement.Batch, Published: s.limit}
	}
	return part
}

// idle is how long until something is due.
func (s *settler) untilNext() time.Duration {
	wait := queue.LeaseTime
	for _, u := range s.waiting {
		wait = min(wait, time.Until(u.notBefore))
	}
	return max(0, wait)
}

// settle writes a part back. A landing that could not be written is tried again while
// its lease lasts: when that runs out, its events are sent again.
func (s *settler) settle(ctx, closing context.Context, part []*unsettled) {
	outcomes, weight := make([]queue.Settlement, len(part)), 0
	for i, u := range part {
		outcomes[i] = u.settlement
		weight += u.weight()
	}
	start := time.Now()
	done, err := s.queue.Settle(closing, s.token, outcomes)
	if err != nil {
		s.failed(ctx, part, weight, err)
		return
	}
	if time.Since(start) < quick {
		s.limit = min(maxEvents, 2*s.limit)
	}
	var settled []publishResult
	var written []queue.Settlement
	var busy []*unsettled
	for _, u := range part {
		if slices.Contains(done.Locked, u.batch.events.Head()) {
			busy = append(busy, u)
		} else {
			settled, written = append(settled, u.publishResult), append(written, u.settlement)
		}
	}
	s.metrics.settled(ctx, settled, done.Lost)
	s.followUps.settled(s.inFlight, written, done.Followed)
	s.forget(settled)
	if len(busy) > 0 {
		s.log.WarnContext(ctx, "rows of published events are locked by somebody else",
			append(busy[0].batch.events[0].LogAttrs(), "aggregates", len(busy))...)
		s.retryLater(busy)
	}
}

// failed has a part that could not be written tried again: at once and in halves if it
// was too large for the statement's time, else later.
func (s *settler) failed(ctx context.Context, part []*unsettled, weight int, err error) {
	s.log.WarnContext(ctx, "relay cannot mark what it published", "error", err, "events", weight, "attempt", part[0].tries+1)
	if queue.IsTimeout(err) && weight > 1 {
		s.limit = max(1, weight/2)
		for _, u := range part { // at once: a part of it may well be in time
			u.notBefore = time.Now()
		}
		s.keepLeased(part)
		return
	}
	s.retryLater(part)
}

// again has a part written later.
func (s *settler) retryLater(part []*unsettled) {
	for _, u := range part {
		u.tries++
		u.notBefore = time.Now().Add(outagePause.Delay(u.tries))
	}
	s.keepLeased(part)
}

// keep puts back the landings that are still leased, and gives the rest up: a scan
// finds those events.
func (s *settler) keepLeased(part []*unsettled) {
	var lost []publishResult
	for _, u := range part {
		if u.batch.validFor(0) {
			s.waiting = append(s.waiting, u)
		} else {
			lost = append(lost, u.publishResult)
			s.followUps.noteUnknownLeases() // a renewal may have been committed
			s.followUps.scheduleScan(u.batch.low, time.Now().Add(queue.LeaseTime))
		}
	}
	s.forget(lost)
}

func (s *settler) forget(results []publishResult) {
	holds := make([]*leasedBatch, len(results))
	for i, l := range results {
		holds[i] = l.batch
	}
	s.inFlight.remove(holds)
}

// gatherTime is how long a landing waits for others at most.
const gatherTime = 2 * time.Millisecond

// gather adds to first what has landed too. While most of what the relay holds is
// still to land, it waits a moment: a statement costs the same for a few.
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

// renew extends the leases that have lasted for a third of their time. One that
// another relay has taken over begins no further request; one with a row that another
// transaction has locked lasts as long as it did.
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
