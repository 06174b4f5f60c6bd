package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// lease is one round's hold on its rows. The database decides who holds them;
// this is the holder's own, always earlier, idea of until when. It is counted on
// the monotonic clock from before the claim was sent, so that neither a slow
// answer nor a wrong clock makes it late.
type lease struct {
	store store
	token string
	// until is nanoseconds since start.
	start time.Time
	until atomic.Int64
}

func newLease(s store) *lease {
	l := &lease{store: s, token: uuid.NewString(), start: time.Now()}
	l.until.Store(int64(leaseTime))
	return l
}

// outlasts reports whether the lease is good for d from now.
func (l *lease) outlasts(d time.Duration) bool {
	return time.Since(l.start)+d < time.Duration(l.until.Load())
}

// keep renews the lease until ctx ends or it is lost.
func (l *lease) keep(ctx context.Context, log *slog.Logger) {
	t := time.NewTicker(renewEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		sent := time.Since(l.start)
		n, err := l.store.renew(ctx, l.token)
		switch {
		case err != nil:
			log.WarnContext(ctx, "lease not renewed", "error", err)
		case n == 0:
			// Another relay has it all: begin nothing more.
			l.until.Store(0)
			return
		default:
			l.until.Store(int64(sent + leaseTime))
		}
	}
}

// circuit stops the rest of a round once one publish has met an outage.
type circuit struct{ tripped atomic.Bool }

func (c *circuit) trip()      { c.tripped.Store(true) }
func (c *circuit) open() bool { return c.tripped.Load() }
