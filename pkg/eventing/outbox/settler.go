package outbox

import (
	"context"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publishResult is a batch that has been sent, with the result of publishing it.
type publishResult struct {
	batch  *leasedBatch
	report report
}

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

// settler writes results into the table. Only the settling goroutine uses it. The batches of
// waiting results count as in flight, and the bound of inFlight limits their number.
type settler struct {
	*Relay

	waiting []*unsettled
	// sentAt is when the last statement was sent.
	sentAt time.Time
	// limit is how many events one statement marks. It adapts to the database's speed. A
	// statement that runs out of time halves the limit, and a quick statement doubles the limit.
	limit int
}

const (
	// renewLook is how often a relay looks for leases to renew. It is short enough that a
	// lease can still be renewed after a statement that ran into its time limit.
	renewLook = renewEvery / 4
	// quick is the longest duration of a quick statement. The statement after a quick one may mark more events.
	quick = queue.Timeout / 10
)

// settleLoop writes results into the table. One statement writes all results that arrived during
// the statement before. The loop ends when results is closed and nothing is left, or when the
// context closing ends. Between two statements the loop renews leases. So settling and renewing
// never wait for each other's row locks, and leases are renewed even while a settling statement
// keeps failing.
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
			for _, l := range s.gather(first, results) {
				s.waiting = append(s.waiting, &unsettled{publishResult: l, settlement: r.settlement(ctx, l), mayBeGone: l.batch.unresolved != nil})
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

const (
	// gatherTime is the longest time that a result waits for half of the events in flight, unless the
	// last statement was sent less than settleEvery ago.
	gatherTime = 2 * time.Millisecond
	// settleEvery is the least time between two statements, unless the results need several. Only an
	// event behind a published event of its aggregate waits for the mark. Without settleEvery, a relay
	// with a thousand events a second sent a statement for every second event, and these statements
	// cost more than all its other work.
	settleEvery = 5 * time.Millisecond
)

// gather returns first and the other results that arrive until settleEvery after the last statement. As
// long as these results have fewer than half of the events in flight, gather also waits until
// gatherTime is over. The waits are worth it because a statement for a few results costs as much as a
// statement for one result.
func (s *settler) gather(first publishResult, results <-chan publishResult) []publishResult {
	batch, events := []publishResult{first}, len(first.batch.events)
	pause, gathered := s.sentAt.Add(settleEvery), time.Now().Add(gatherTime)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		until := pause
		if 2*events < s.inFlight.total() {
			until = later(pause, gathered)
		}
		wait := time.Until(until)
		if wait <= 0 && len(results) == 0 {
			return batch
		}
		timer.Reset(wait)
		select {
		case l, ok := <-results:
			if !ok {
				return batch
			}
			batch, events = append(batch, l), events+len(l.batch.events)
		case <-timer.C:
		}
	}
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

// settleDue settles all results that are due, in as many statements as needed.
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

// take removes the results for the next statement from waiting and returns them. The results are
// due, and together have no more events than the limit. If one batch alone is over the limit, take
// returns its result with only as many events as the limit allows.
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
		// One batch alone is over the limit. Only its first events are marked, because a
		// statement for all of them would run out of time again. The rest loses its lease and
		// is sent a second time.
		part[0].settlement = queue.Settlement{Batch: part[0].settlement.Batch, Published: s.limit}
	}
	return part
}

// untilNext returns how long it takes until the next result is due.
func (s *settler) untilNext() time.Duration {
	wait := queue.LeaseTime
	for _, u := range s.waiting {
		wait = min(wait, time.Until(u.notBefore))
	}
	return max(0, wait)
}

// settle writes results in one statement. A result that could not be written is tried again
// while the lease of its batch lasts. When the lease has run out, a relay sends the events of the
// batch again.
func (s *settler) settle(ctx, closing context.Context, part []*unsettled) {
	settlements, weight := make([]queue.Settlement, len(part)), 0
	for i, u := range part {
		settlements[i], weight = u.settlement, weight+u.weight()
	}
	s.sentAt = time.Now()
	done, err := s.queue.Settle(closing, s.token, settlements)
	if err != nil {
		s.failed(ctx, part, weight, err)
		return
	}
	if time.Since(s.sentAt) < quick {
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
	lost := firstOf(written, slices.Clone(done.Lost))
	s.metrics.settled(ctx, written, len(lost))
	s.followUps.settled(slices.DeleteFunc(slices.Clone(written), func(u *unsettled) bool { return u.isMissing(done.Lost) }), done.Followed)
	s.lost(ctx, written, lost)
	s.observeRefusals(ctx, written)
	s.closeResolved(written, done)
	s.removeSettled(written)
	if len(locked) > 0 {
		oldest := locked[0].batch.events[0]
		s.log.WarnContext(oldest.InTrace(ctx), "rows of published events are locked by another session, perhaps by another relay",
			append(oldest.LogAttrs(), "aggregates", len(locked))...)
		s.retryLater(locked)
	}
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
