package outbox

import (
	"context"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// joining is the relay's row in the table of relays.
type joining struct {
	mu      sync.Mutex
	server  time.Time // of the last beat that was answered
	unknown bool      // whether there was one since that was not
}

// join writes the relay into the table of relays, before it claims anything.
func (r *Relay) join(ctx context.Context, s *claims) {
	if err := r.writeBeat(ctx, false); err != nil {
		r.held(ctx, s, err)
		return
	}
	s.failures, s.heldUntil = 0, time.Time{}
	r.failures.Store(0)
}

// beating keeps the relay's row, and takes over from those that have died, until ctx
// ends.
func (r *Relay) beating(ctx context.Context) {
	for backoff.Sleep(ctx, jittered(queue.BeatEvery), nil) {
		if !r.agenda.news().joined {
			continue
		}
		if err := r.writeBeat(ctx, false); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "relay cannot show that it is alive: others may look for its events", "error", err)
		}
	}
}

func (r *Relay) writeBeat(ctx context.Context, ended bool) error {
	r.joining.mu.Lock()
	defer r.joining.mu.Unlock()
	low := r.agenda.low(r.flight)
	first, met := low == "", r.joining.server
	if r.joining.unknown {
		met = time.Time{} // what it has taken over, if anything, is in its row
	}
	b, err := r.queue.Beat(ctx, r.token, low, met, ended)
	if err != nil {
		r.joining.unknown = true
		return err
	}
	anew := first || !b.Server.Equal(r.joining.server)
	r.joining.server, r.joining.unknown = b.Server, false
	r.agenda.beaten(b, low, anew)
	return nil
}

// leave says that the relay has ended: others need not wait until they take it for
// dead.
func (r *Relay) leave(closing context.Context) {
	if !r.agenda.news().joined || closing.Err() != nil {
		return
	}
	if err := r.writeBeat(closing, true); err != nil {
		r.log.WarnContext(closing, "relay cannot say that it has ended: others will find out", "error", err)
	}
}
