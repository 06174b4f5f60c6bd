package outbox

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The relay's scheduler consists of three state machines, which use no database. Each computes
// the next action of one goroutine from the time and the due times. claimSchedule is for claims
// of new events, scanSchedule for scans and retries, and turnSchedule for the turns of held
// tenants. The package doc has diagrams of them.

// action is the next step of a schedule.
type action int

const (
	actIdle      action = iota // wait until the time that next returns, or until there may be work
	actPause                   // wait until the time that next returns, even if there is work
	actRegister                // write the relay into the table of relays
	actClaim                   // claim new events
	actRetries                 // claim the retries that are due
	actStartScan               // begin the scan that is due
	actScanPage                // read the next page of the scan
	actSweepPage               // read the next page of the sweep
	actTurn                    // claim events of the next held tenant
)

const (
	// scanRows is how many rows a page of a scan reads. sweepRows is how many rows a page of the
	// sweep reads.
	scanRows, sweepRows = 2000, 1000
	// While tenants are held, a scan pauses after each page without anything to claim: pagePauseShare times
	// as long as the page took, but maxPagePause at most. Otherwise a scan of a million events of a held tenant
	// would take a core of the database for seconds, and slow down the new events of other tenants.
	pagePauseShare = 2
	maxPagePause   = 200 * time.Millisecond
	// scanEvery is the longest pause between two claims of retries, between two pages of the
	// sweep, and before a scan for rows that a claim or another scan had to skip. Each pause is
	// jittered.
	scanEvery = 5 * time.Second
	// longestWait is the longest time that a relay waits before it calls the heartbeat
	// function of NewRelay again.
	longestWait = 5 * time.Second
)

// outages counts the failures in a row of one kind of statement, and has the end of the pause
// after the last failure. Statements of other kinds go on.
type outages struct {
	failures    int
	since       time.Time // of the first failure; zero if there is none
	pausedUntil time.Time
	// refused says that the last failure was queue.ErrAnotherServer.
	refused bool
}

// failed plans the pause after a failure. If the failure is queue.ErrAnotherServer, a server has
// answered, so the outage before is over. The relay meets this server at once. So the pause is as short
// as after a first failure, unless the failure before was the same.
func (o *outages) failed(now time.Time, err error, p backoff.Policy) (pause time.Duration) {
	if o.failures == 0 {
		o.since = now
	}
	before := o.refused
	if o.refused = errors.Is(err, queue.ErrAnotherServer); o.refused && !before {
		o.failures = 0
	}
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

// next returns the next action. For actIdle and actPause it also returns the time until which to
// wait. wakeup says that events may have been committed. allPaused says that every topic is
// paused.
func (c *claimSchedule) next(now time.Time, due dueTimes, wakeup, allPaused bool) (action, time.Time) {
	switch {
	case now.Before(c.pausedUntil): // new work does not repair the database
		return actPause, c.pausedUntil
	case !due.registered:
		return actRegister, now
	case allPaused: // new work does not repair a topic either
		return actPause, now.Add(longestWait)
	case wakeup || !now.Before(c.pollAt) || !due.claimAt.IsZero() && !now.Before(due.claimAt):
		return actClaim, now
	default:
		return actIdle, soonest(soonest(c.pollAt, due.claimAt), now.Add(longestWait))
	}
}

// claimed plans the next poll after a successful claim. sent is when that claim was sent.
func (c *claimSchedule) claimed(sent time.Time, batches int, truncated bool) {
	c.succeeded()
	c.emptyPolls++
	if batches > 0 {
		c.emptyPolls = 1
	}
	if c.pollAt = sent.Add(idlePause.Delay(c.emptyPolls)); truncated {
		c.pollAt = sent // there may be more new events
	}
}

// scanSchedule is the schedule of scans and retries.
type scanSchedule struct {
	// outages has the failures of each action. While one action pauses, the others go on.
	outages [actSweepPage + 1]outages
	// parts are the unread parts of the running scan, which began at low. The next page is read at pageAt or later.
	parts  []queue.Cursor
	low    datedLow
	pageAt time.Time
	// sweep has the unread parts of the pass through the whole table. The sweep finds rows that
	// no relay knows of, such as rows changed by hand.
	sweep []queue.Cursor
	// retryAt is when retries are claimed next if nothing makes them due earlier. sweepAt is
	// when the next page of the sweep is due.
	retryAt, sweepAt time.Time
	// scanMetLocks is true if the running scan has met rows that another session has locked.
	scanMetLocks bool
	// scanLocks notes since when scans have met such locked rows, and retryLocks since when claims of
	// retries have met them.
	scanLocks, retryLocks lockedRows
	// retriesLast says that the last claim was a claim of retries. If so, a page that is due comes
	// before due retries. Retries may be due for as long as a topic fails, and scans must go on
	// meanwhile.
	retriesLast bool
}

func newScanSchedule() *scanSchedule {
	return &scanSchedule{sweep: queue.Beginning.Since(), retryAt: time.Now()}
}

// next returns the action that is due, or actIdle and the time until which to wait.
func (s *scanSchedule) next(now time.Time, due dueTimes) (action, time.Time) {
	retryAt, sweepAt := s.after(actRetries, soonest(s.retryAt, due.retryAt)), s.after(actSweepPage, s.sweepAt)
	scan, scanAt := actStartScan, due.scanAt
	if len(s.parts) > 0 {
		scan, scanAt = actScanPage, s.after(actScanPage, later(now, s.pageAt))
	}
	retries := !now.Before(retryAt) && !due.retriesWait
	switch {
	case !due.registered:
		return actIdle, now.Add(scanEvery)
	case retries && !s.retriesLast:
		return actRetries, now
	case !scanAt.IsZero() && !now.Before(scanAt):
		return scan, now
	case !now.Before(sweepAt):
		return actSweepPage, now
	case retries:
		return actRetries, now
	case !now.Before(retryAt):
		return actIdle, now.Add(turnEvery)
	default:
		return actIdle, soonest(soonest(retryAt, scanAt), sweepAt)
	}
}

// after returns the later of two times: the time at, and the end of the action's pause after a
// failure.
func (s *scanSchedule) after(a action, at time.Time) time.Time {
	return later(at, s.outages[a].pausedUntil)
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// retried plans the next claim of retries after a successful claim of retries. now is the time at
// which the successful claim was sent. in is the duration from then until the next retry is due, or
// zero if there is no later retry. If the successful claim was truncated, the next claim is due at
// once. Otherwise the next claim is due when the next retry is due, or after a jittered scanEvery,
// whichever is earlier.
func (s *scanSchedule) retried(now time.Time, truncated bool, in time.Duration) {
	s.outages[actRetries].succeeded()
	switch s.retryAt, s.retriesLast = now.Add(jittered(scanEvery)), true; {
	case truncated:
		s.retryAt = now
	case in > 0:
		s.retryAt = soonest(s.retryAt, now.Add(in))
	}
}

// started begins a scan of the rows that low.snapshot did not see.
func (s *scanSchedule) started(low datedLow) {
	s.low, s.parts, s.pageAt, s.scanMetLocks = low, low.snapshot.Since(), time.Time{}, false
}

// pausePages plans the pause after a page of a scan that has found nothing to claim while tenants are
// held. sent is when the relay asked for that page.
func (s *scanSchedule) pausePages(sent, now time.Time) {
	s.pageAt = now.Add(min(maxPagePause, pagePauseShare*now.Sub(sent)))
}

// paged notes that the scan has read the page p, and reports whether the scan is complete.
func (s *scanSchedule) paged(p queue.Page) (through bool) {
	s.outages[actScanPage].succeeded()
	s.scanMetLocks = s.scanMetLocks || isLocked(p.Claimed)
	s.parts, s.retriesLast = behind(s.parts, p), false
	return len(s.parts) == 0
}

// swept notes that the sweep has read the page p, and plans the next page.
func (s *scanSchedule) swept(now time.Time, p queue.Page) {
	s.outages[actSweepPage].succeeded()
	if s.sweepAt, s.retriesLast = now.Add(jittered(scanEvery)), false; p.Truncated {
		s.sweepAt = now
	}
	if s.sweep = behind(s.sweep, p); len(s.sweep) == 0 {
		s.sweep = queue.Beginning.Since()
	}
}

// turnSchedule is the schedule of the turns of held tenants.
type turnSchedule struct {
	outages

	// at is when the next round of turns begins. claims is the number of claims in the present
	// round.
	at     time.Time
	claims int
}

// next returns the next action. For actIdle and actPause it also returns the time until which to
// wait.
func (s *turnSchedule) next(now time.Time, due dueTimes) (action, time.Time) {
	switch {
	case now.Before(s.pausedUntil):
		return actPause, s.pausedUntil
	case !due.registered || !due.held:
		return actIdle, now.Add(longestWait)
	case now.Before(s.at):
		return actIdle, s.at
	default:
		return actTurn, now
	}
}

// turned plans the next claim for held tenants after a turn that ended at the time now. over says
// that no tenant can have a turn, which ends the round of turns. held is the number of held
// tenants. The next claim is due at once, unless the round has ended. The pause between two rounds
// leaves the database time for other statements, however long claims take.
func (s *turnSchedule) turned(now time.Time, over bool, held int) {
	s.claims++
	if over || s.claims >= turnClaims*held {
		s.at, s.claims = now.Add(turnEvery), 0
	}
}

// behind returns the unread parts of a scan after the scan has read the page p of the first part.
// If the page was truncated, the scan reads it again.
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

// jittered returns a random duration between half of d and d.
func jittered(d time.Duration) time.Duration {
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}
