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
	wait   action = iota // until the time that comes with it, or until there is news
	sit                  // until that time, also if there is news
	join                 // write the relay into the table of relays
	claim                // claim new events
	retry                // claim the retries that are due
	begin                // begin a scan from where it is owed
	page                 // go on with the scan
	patrol               // go on with the round through the whole table
)

const (
	// scanRows is how many rows a page of a scan passes, and patrolRows one of the
	// rounds that nobody asked for.
	scanRows, patrolRows = 2000, 1000
	// scanEvery is the pause before a scan for rows that another one had to leave, and
	// between two pages of a round.
	scanEvery = 5 * time.Second
	// beatEvery is how often a relay shows that it is alive while it waits.
	beatEvery = 5 * time.Second
	// A claim takes at least so many aggregates, and at most.
	minAggregates, maxAggregates = 16, 500
)

// claims is the schedule of claims.
type claims struct {
	// pollAt is when a claim of new events is due without a reason.
	pollAt time.Time
	empty  int // looks in a row that found nothing
	// heldUntil is the end of the pause after a failure.
	heldUntil time.Time
	failures  int
}

// next returns the action that is due. allOut says that each topic is out; woken, that
// something was committed.
func (c *claims) next(now time.Time, n news, woken, allOut bool) (action, time.Time) {
	switch {
	case now.Before(c.heldUntil): // new work does not make the database come back
		return sit, c.heldUntil
	case !n.joined:
		return join, now
	case allOut: // nor a topic
		return sit, now.Add(beatEvery)
	case woken || !now.Before(c.pollAt) || !n.lookAt.IsZero() && !now.Before(n.lookAt):
		return claim, now
	default:
		return wait, soonest(soonest(c.pollAt, n.lookAt), now.Add(beatEvery))
	}
}

// claimed plans the next poll after a claim that was sent then.
func (c *claims) claimed(sent time.Time, runs int, cut bool) {
	c.failures, c.heldUntil = 0, time.Time{}
	c.empty++
	if runs > 0 {
		c.empty = 1
	}
	if c.pollAt = sent.Add(idle.Delay(c.empty)); cut {
		c.pollAt = sent // there may be more that is new
	}
}

// failed plans the pause after a failure, and returns how many there were in a row.
func (c *claims) failed(now time.Time) int {
	c.failures++
	c.heldUntil = now.Add(outage.Delay(c.failures))
	return c.failures
}

// scans is the schedule of scans and retries, beside the claims.
type scans struct {
	// parts are the rest of the scan on its way, which started at from.
	parts []queue.Cursor
	from  queue.Snapshot
	// round is how far the round through the whole table has come: it finds rows that no
	// relay knows of, such as those that were changed by hand.
	round queue.Cursor
	// retryAt and roundAt are when a look at the retries, and a page of the round, are
	// due without a reason.
	retryAt, roundAt time.Time
	heldUntil        time.Time
	failures         int
}

func newScans() *scans { return &scans{round: start()} }

func start() queue.Cursor { return queue.Beginning.Since()[0] }

// next returns the action that is due.
func (s *scans) next(now time.Time, n news) (action, time.Time) {
	due := func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }
	switch {
	case now.Before(s.heldUntil):
		return sit, s.heldUntil
	case !n.joined:
		return wait, now.Add(scanEvery)
	case !now.Before(s.retryAt) || due(n.retryAt):
		return retry, now
	case len(s.parts) > 0:
		return page, now
	case due(n.owedAt):
		return begin, now
	case !now.Before(s.roundAt):
		return patrol, now
	default:
		return wait, soonest(soonest(s.retryAt, n.retryAt), soonest(s.roundAt, n.owedAt))
	}
}

// retried plans the next look at retries, of which one is due then, if there is any.
func (s *scans) retried(now time.Time, cut bool, in time.Duration) {
	s.succeeded()
	switch s.retryAt = now.Add(jittered(scanEvery)); {
	case cut:
		s.retryAt = now
	case in > 0:
		s.retryAt = soonest(s.retryAt, now.Add(in))
	}
}

// begun plans a scan.
func (s *scans) begun(from queue.Snapshot) { s.from, s.parts = from, from.Since() }

// paged goes on behind a page, and reports whether the scan is through. A page
// for which a claim had no room is scanned again.
func (s *scans) paged(p queue.Page) (through bool) {
	s.succeeded()
	switch {
	case p.Cut:
	case p.Done:
		s.parts = s.parts[1:]
	default:
		s.parts[0] = p.Next
	}
	return len(s.parts) == 0
}

// patrolled goes on behind a page of the round.
func (s *scans) patrolled(now time.Time, p queue.Page) {
	s.succeeded()
	s.roundAt = now.Add(jittered(scanEvery))
	switch {
	case p.Cut:
		s.roundAt = now
	case p.Done:
		s.round = start()
	default:
		s.round = p.Next
	}
}

// failed plans the pause after a failure. It says nothing of the claims.
func (s *scans) failed(now time.Time) time.Duration {
	s.failures++
	pause := outage.Delay(s.failures)
	s.heldUntil = now.Add(pause)
	return pause
}

func (s *scans) succeeded() { s.failures, s.heldUntil = 0, time.Time{} }

// jittered is between half of d and d.
func jittered(d time.Duration) time.Duration { //nolint:unparam // both pauses happen to be 5 s
	return d/2 + time.Duration(rand.Int64N(int64(d/2)))
}
