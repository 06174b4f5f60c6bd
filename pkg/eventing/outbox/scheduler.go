package outbox

import (
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// The schedules decide the next action from the time and the news, without a database.
// One is of the claims of new events, the other of the scans and retries beside them,
// each for one goroutine.

// action is the next step of a schedule.
type action int

const (
	actIdle      action = iota // until the time that comes with it, or until there is news
	actPause                   // until that time, also if there is news
	actRegister                // write the relay into the table of relays
	actClaim                   // claim new events
	actRetries                 // claim the retries that are due
	actStartScan               // begin a scan from where it is owed
	actScanPage                // go on with the scan
	actSweepPage               // go on with the round through the whole table
)

const (
	// scanRows is how many rows a page of a scan passes, and patrolRows one of the
	// rounds that nobody asked for.
	scanRows, sweepRows = 2000, 1000
	// scanEvery is the pause before a scan for rows that another one had to leave, and
	// between two pages of a round.
	scanEvery = 5 * time.Second
	// beatEvery is how often a relay shows that it is alive while it waits.
	heartbeatEvery = 5 * time.Second
	// A claim takes at least so many aggregates, and at most.
	minAggregates, maxAggregates = 16, 500
)

// claims is the schedule of claims.
type claimSchedule struct {
	// pollAt is when a claim of new events is due without a reason.
	pollAt     time.Time
	emptyPolls int // looks in a row that found nothing
	// heldUntil is the end of the pause after a failure.
	pausedUntil time.Time
	failures    int
}

// next returns the action that is due. allOut says that each topic is out; woken, that
// something was committed.
func (c *claimSchedule) next(now time.Time, due dueTimes, wakeup, allOut bool) (action, time.Time) {
	switch {
	case now.Before(c.pausedUntil): // new work does not make the database come back
		return actPause, c.pausedUntil
	case !due.registered:
		return actRegister, now
	case allOut: // nor a topic
		return actPause, now.Add(heartbeatEvery)
	case wakeup || !now.Before(c.pollAt) || !due.claimAt.IsZero() && !now.Before(due.claimAt):
		return actClaim, now
	default:
		return actIdle, soonest(soonest(c.pollAt, due.claimAt), now.Add(heartbeatEvery))
	}
}

// claimed plans the next poll after a claim that was sent then.
func (c *claimSchedule) claimed(sent time.Time, runs int, cut bool) {
	c.failures, c.pausedUntil = 0, time.Time{}
	c.emptyPolls++
	if runs > 0 {
		c.emptyPolls = 1
	}
	if c.pollAt = sent.Add(idlePause.Delay(c.emptyPolls)); cut {
		c.pollAt = sent // there may be more that is new
	}
}

// failed plans the pause after a failure, and returns how many there were in a row.
func (c *claimSchedule) failed(now time.Time) int {
	c.failures++
	c.pausedUntil = now.Add(outagePause.Delay(c.failures))
	return c.failures
}

// scans is the schedule of scans and retries, beside the claims.
type scanSchedule struct {
	// parts are the rest of the scan on its way, which started at from.
	parts []queue.Cursor
	low   queue.TxSnapshot
	// round is how far the round through the whole table has come: it finds rows that no
	// relay knows of, such as those that were changed by hand.
	sweep queue.Cursor
	// retryAt and roundAt are when a look at the retries, and a page of the round, are
	// due without a reason.
	retryAt, sweepAt time.Time
	pausedUntil      time.Time
	failures         int
}

func newScanSchedule() *scanSchedule { return &scanSchedule{sweep: wholeTable()} }

func wholeTable() queue.Cursor { return queue.Beginning.Since()[0] }

// next returns the action that is due.
func (s *scanSchedule) next(now time.Time, due dueTimes) (action, time.Time) {
	reached := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	switch {
	case now.Before(s.pausedUntil):
		return actPause, s.pausedUntil
	case !due.registered:
		return actIdle, now.Add(scanEvery)
	case !now.Before(s.retryAt) || reached(due.retryAt):
		return actRetries, now
	case len(s.parts) > 0:
		return actScanPage, now
	case reached(due.scanAt):
		return actStartScan, now
	case !now.Before(s.sweepAt):
		return actSweepPage, now
	default:
		return actIdle, soonest(soonest(s.retryAt, due.retryAt), soonest(s.sweepAt, due.scanAt))
	}
}

// retried plans the next look at retries, of which one is due then, if there is any.
func (s *scanSchedule) retried(now time.Time, cut bool, in time.Duration) {
	s.succeeded()
	switch s.retryAt = now.Add(jittered(scanEvery)); {
	case cut:
		s.retryAt = now
	case in > 0:
		s.retryAt = soonest(s.retryAt, now.Add(in))
	}
}

// begun plans a scan.
func (s *scanSchedule) started(low queue.TxSnapshot) { s.low, s.parts = low, low.Since() }

// paged goes on behind a page, and reports whether the scan is through. A page
// for which a claim had no room is scanned again.
func (s *scanSchedule) paged(p queue.Page) (through bool) {
	s.succeeded()
	switch {
	case p.Truncated:
	case p.Done:
		s.parts = s.parts[1:]
	default:
		s.parts[0] = p.Next
	}
	return len(s.parts) == 0
}

// patrolled goes on behind a page of the round.
func (s *scanSchedule) swept(now time.Time, p queue.Page) {
	s.succeeded()
	s.sweepAt = now.Add(jittered(scanEvery))
	switch {
	case p.Truncated:
		s.sweepAt = now
	case p.Done:
		s.sweep = wholeTable()
	default:
		s.sweep = p.Next
	}
}

// failed plans the pause after a failure. It says nothing of the claims.
func (s *scanSchedule) failed(now time.Time) time.Duration {
	s.failures++
	pause := outagePause.Delay(s.failures)
	s.pausedUntil = now.Add(pause)
	return pause
}

func (s *scanSchedule) succeeded() { s.failures, s.pausedUntil = 0, time.Time{} }

// jittered is between half of d and d.
func jittered(d time.Duration) time.Duration { //nolint:unparam // both pauses happen to be 5 s
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}
