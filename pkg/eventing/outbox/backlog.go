package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// watchEvery is how often the backlog is read for the metrics, unless that takes
	// long: then a twentieth of the time is spent on it, but it is read as often as
	// watchLeast says.
	watchEvery = 2 * time.Second
	watchShare = 20
	watchLeast = 30 * time.Second
	// staleAfter is how old a backlog is when it counts as unknown.
	staleAfter = 2 * watchLeast
)

// standing is how the outbox stood at a time.
type standing struct {
	queue.Backlog
	at time.Time // zero: it was never read
	// failed says that it could not be read since.
	failed bool
}

func (s *standing) known() int64 {
	if s.failed || s.at.IsZero() || time.Since(s.at) > staleAfter {
		return 0
	}
	return 1
}

// oldest is the age of the oldest event, as far as is known.
func (s *standing) oldest() time.Duration {
	if s.Oldest == 0 || s.known() == 1 {
		return s.Oldest
	}
	return s.Oldest + time.Since(s.at)
}

// watching reads the backlog for the metrics until ctx ends: beside everything else,
// with a time limit of its own.
func (r *Relay) watching(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		b, err := r.queue.Backlog(ctx)
		if now := (&standing{b, start, false}); err == nil {
			r.backlog.Store(now)
		} else if ctx.Err() == nil {
			was := *r.backlog.Load()
			was.failed = true
			r.backlog.Store(&was)
			r.log.WarnContext(ctx, "the backlog is not known", "error", err)
		}
		backoff.Sleep(ctx, min(watchLeast, max(watchEvery, watchShare*time.Since(start))), nil)
	}
}
