package outbox

import (
	"context"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// registration is the relay's row in the table of relays.
type registration struct {
	mu         sync.Mutex
	server     time.Time // of the last heartbeat that was answered
	unanswered bool      // a later heartbeat was not answered
}

// register writes the relay into the table of relays, before its first claim.
func (r *Relay) register(ctx context.Context, s *claimSchedule) {
	if err := r.writeHeartbeat(ctx, false); err != nil {
		r.claimFailed(ctx, s, err)
		return
	}
	s.succeeded()
	r.failures.Store(0)
}

// heartbeatLoop updates the relay's row in the table of relays until ctx ends. The same
// statement takes over the rows of dead relays.
func (r *Relay) heartbeatLoop(ctx context.Context) {
	for backoff.Sleep(ctx, jittered(queue.HeartbeatEvery), nil) {
		if !r.followUps.due().registered {
			continue
		}
		if err := r.writeHeartbeat(ctx, false); err != nil && ctx.Err() == nil {
			r.log.WarnContext(ctx, "relay cannot show that it is alive: others may look for its events", "error", err)
		}
	}
}

func (r *Relay) writeHeartbeat(ctx context.Context, ended bool) error {
	r.registration.mu.Lock()
	defer r.registration.mu.Unlock()
	low := r.followUps.low(r.inFlight)
	first, server := low == "", r.registration.server
	if r.registration.unanswered {
		server = time.Time{} // events that it may have taken over are covered by its row
	}
	b, err := r.queue.Heartbeat(ctx, r.token, low, r.tenants.lastActive(time.Now()), server, ended)
	if err != nil {
		r.registration.unanswered = true
		return err
	}
	restart := first || !b.Server.Equal(r.registration.server)
	r.registration.server, r.registration.unanswered = b.Server, false
	r.followUps.heartbeatWritten(b, low, restart)
	for _, tenant := range b.Tenants {
		r.tenants.meet(tenant, time.Now())
	}
	return nil
}

// deregister writes that the relay has ended. Without it the others wait until they take it
// for dead.
func (r *Relay) deregister(closing context.Context) {
	if !r.followUps.due().registered || closing.Err() != nil {
		return
	}
	if err := r.writeHeartbeat(closing, true); err != nil {
		r.log.WarnContext(closing, "relay cannot say that it has ended: others will find out", "error", err)
	}
}
