package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// lockedTime is a duration. No claim or settlement of another relay locks a row for that long. So
	// if claims meet a locked row for that long, a session of another kind has locked it, such as a
	// forgotten transaction of an administrator.
	lockedTime = 5 * time.Second
	// sayLocked is the pause between two log lines about locked rows.
	sayLocked = time.Minute
)

// lockedRows notes since when claims have met rows of pending events that another session has locked.
// A claim waits for no lock, so neither Postgres nor a failure shows why the events do not leave.
type lockedRows struct{ since, saidAt time.Time }

// isLocked reports whether a claim has met a locked row. Skipped rows without a lease are locked, unless
// the claim was cut off by its limits. Then it has skipped rows that the next claim takes.
func isLocked(c queue.Claimed) bool { return c.Skipped && !c.Truncated && c.FreeIn == 0 }

// met notes whether a claim has met locked rows, and reports whether a log line is due.
func (l *lockedRows) met(now time.Time, locked bool) (say bool) {
	switch {
	case !locked:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = now
	case now.Sub(l.since) >= lockedTime && now.Sub(l.saidAt) >= sayLocked:
		l.saidAt = now
		return true
	}
	return false
}

// noteLocked notes the end of a scan or of a claim of retries, and whether it has met locked rows.
func (r *Relay) noteLocked(ctx context.Context, l *lockedRows, locked bool) {
	if now := time.Now(); l.met(now, locked) {
		r.log.WarnContext(ctx, "rows of pending events are locked by another session, so these events do not leave",
			"since_ms", now.Sub(l.since).Milliseconds())
	}
}
