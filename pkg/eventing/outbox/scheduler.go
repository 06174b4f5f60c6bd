package outbox

import (
	"math/rand/v2"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The schedules are the relay's scheduler: three state machines without a database. Each
// decides the next action of one goroutine from the time and the due times: claimSchedule
// for the claims of new events, scanSchedule for scans and retries, turnSchedule for the
// turns of held tenants. The package doc has their diagrams.

// action is the next step of a schedule.
type action int

const (
	actIdle      action = iota // wait until the time that comes with it, or until there may be work
	actPause                   // wait until that time, whatever there is to do
	actRegister                // write the relay into the table of relays
	actClaim                   // claim new events
	actRetries                 // claim the retries that are due
	actStartScan               // begin the scan that is due
	actScanPage                // read the next page of the scan
	actSweepPage               // read the next page of the sweep
	actTurn                    // claim events of the next held tenant
)

const (
	// scanRows is how many rows a page of a scan reads, and sweepRows how many a page of
	// the sweep reads.
	scanRows, sweepRows = 2000, 1000
	// scanEvery is the pause before a scan for rows that a claim or another scan had to
	// skip, and between two pages of the sweep.
	scanEvery = 5 * time.Second
	// heartbeatEvery is how often a waiting relay shows that it is alive.
	heartbeatEvery = 5 * time.Second
)

// outages are the failures in a row of one goroutine's statements, with the end of the pause
// after the last one. Other goroutines go on.
type outages struct {
	failures    int
	pausedUntil time.Time
}

// failed plans the pause after a failure.
func (o *outages) failed(now time.Time, p backoff.Policy) (pause time.Duration) {
	o.failures++
	pause = p.Delay(o.failures)
	o.pausedUntil = now.Add(pause)
	return pause
}

func (o *outages) succeeded() { *o = outages{} }

// claimSchedule is the schedule of claims.
type claimSchedule struct {
	outages

	// pollAt is the time of the next claim of new events if nothing makes it due earlier.
	pollAt     time.Time
	emptyPolls int // claims in a row that found nothing
}

// next returns the action that is due, or the time until which to wait. wakeup says that
// something was committed, allPaused that every topic is paused.
func (c *claimSchedule) next(now time.Time, due dueTimes, wakeup, allPaused bool) (action, time.Time) {
	switch {
	case now.Before(c.pausedUntil): // new work does not make the database come back
		return actPause, c.pausedUntil
	case !due.registered:
		return actRegister, now
	case allPaused: // nor a topic
		return actPause, now.Add(heartbeatEvery)
	case wakeup || !now.Before(c.pollAt) || !due.claimAt.IsZero() && !now.Before(due.claimAt):
		return actClaim, now
	default:
		return actIdle, soonest(soonest(c.pollAt, due.claimAt), now.Add(heartbeatEvery))
	}
}

// claimed plans the next poll after a successful claim that was sent then.
func (c *claimSchedule) claimed(sent time.Time, batches int, truncated bool) {
	c.succeeded()
	c.emptyPolls++
	if batches > 0 {
		c.emptyPolls = 1
	}
	if c.pollAt = sent.Add(idlePause.Delay(c.emptyPolls)); truncated {
		c.pollAt = sent // there may be more that is new
	}
}

// scanSchedule is the schedule of scans and retries.
type scanSchedule struct {
	// outages are those of each kind of action: while one pauses, the others go on.
	outages [actSweepPage + 1]outages
	// parts are the rest of the running scan, which began at low.
	parts []queue.Cursor
	low   queue.TxSnapshot
	// sweep is the rest of the pass through the whole table. It finds rows that no relay
	// knows of, such as rows changed by hand.
	sweep []queue.Cursor
	// retryAt and sweepAt are the times of the next claim of retries and of the next page of
	// the sweep if nothing makes them due earlier.
	retryAt, sweepAt time.Time
}

func newScanSchedule() *scanSchedule {
	return &scanSchedule{sweep: queue.Beginning.Since(), retryAt: time.Now()}
}

// next returns the action that is due, or the time until which to wait.
func (s *scanSchedule) next(now time.Time, due dueTimes) (action, time.Time) {
	retryAt, sweepAt := s.after(actRetries, soonest(s.retryAt, due.retryAt)), s.after(actSweepPage, s.sweepAt)
	scan, scanAt := actStartScan, due.scanAt
	if len(s.parts) > 0 {
		scan, scanAt = actScanPage, s.after(actScanPage, now)
	}
	switch {
	case !due.registered:
		return actIdle, now.Add(scanEvery)
	case !now.Before(retryAt) && !due.retriesWait:
		return actRetries, now
	case !scanAt.IsZero() && !now.Before(scanAt):
		return scan, now
	case !now.Before(sweepAt):
		return actSweepPage, now
	case !now.Before(retryAt):
		return actIdle, now.Add(turnEvery)
	default:
		return actIdle, soonest(soonest(retryAt, scanAt), sweepAt)
	}
}

// after is at, or the end of the action's pause.
func (s *scanSchedule) after(a action, at time.Time) time.Time {
	return slices.MaxFunc([]time.Time{at, s.outages[a].pausedUntil}, time.Time.Compare)
}

// retried plans the next claim of retries after one that was sent then: at once if it was
// truncated, else when the next retry is due, after in. Zero is none.
func (s *scanSchedule) retried(now time.Time, truncated bool, in time.Duration) {
	s.outages[actRetries].succeeded()
	switch s.retryAt = now.Add(jittered(scanEvery)); {
	case truncated:
		s.retryAt = now
	case in > 0:
		s.retryAt = soonest(s.retryAt, now.Add(in))
	}
}

// started begins a scan of the rows that low did not see.
func (s *scanSchedule) started(low queue.TxSnapshot) { s.low, s.parts = low, low.Since() }

// paged continues behind a page, and reports whether the scan is complete.
func (s *scanSchedule) paged(p queue.Page) (through bool) {
	s.outages[actScanPage].succeeded()
	s.parts = behind(s.parts, p)
	return len(s.parts) == 0
}

// swept continues behind a page of the sweep.
func (s *scanSchedule) swept(now time.Time, p queue.Page) {
	s.outages[actSweepPage].succeeded()
	if s.sweepAt = now.Add(jittered(scanEvery)); p.Truncated {
		s.sweepAt = now
	}
	if s.sweep = behind(s.sweep, p); len(s.sweep) == 0 {
		s.sweep = queue.Beginning.Since()
	}
}

// turnSchedule is the schedule of the turns of held tenants.
type turnSchedule struct {
	outages

	// at is the time of the next turn, and claims are those of the present one.
	at     time.Time
	claims int
}

// next returns the action that is due, or the time until which to wait.
func (s *turnSchedule) next(now time.Time, due dueTimes) (action, time.Time) {
	switch {
	case now.Before(s.pausedUntil):
		return actPause, s.pausedUntil
	case !due.registered || !due.held:
		return actIdle, now.Add(heartbeatEvery)
	case now.Before(s.at):
		return actIdle, s.at
	default:
		return actTurn, now
	}
}

// turned plans the next claim of a turn of so many held tenants, after one that ended now: at
// once, unless the turn is over. Between two turns the database has time for others, however
// long the claims take.
func (s *turnSchedule) turned(now time.Time, over bool, held int) {
	s.claims++
	if over || s.claims >= turnClaims*held {
		s.at, s.claims = now.Add(turnEvery), 0
	}
}

// behind is the rest of a scan behind the page that was read of its first part. A truncated
// page is read again.
func behind(parts []queue.Cursor, p queue.Page) []queue.Cursor {
	switch {
	case p.Truncated:
	case p.Done:
		return parts[1:]
	default:
		parts[0] = p.Next
	}
	return parts
}

// jittered is between half of d and d.
func jittered(d time.Duration) time.Duration { //nolint:unparam // both pauses happen to be 5 s
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}
