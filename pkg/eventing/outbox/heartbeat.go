package outbox

import (
	"context"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// goneMargin is a duration that nextHeartbeat adds to HeartbeatResult.GoneIn, because GoneIn is
// measured by the database's clock.
const goneMargin = 50 * time.Millisecond

// registration is the relay's row in the table of relays.
type registration struct {
	mu   sync.Mutex
	last queue.HeartbeatResult // of the last answered heartbeat
	// failures is the number of heartbeats that have failed since the last answered one.
	failures int
}

// register writes the relay's row into the table of relays. The relay registers before its first
// claim.
func (r *Relay) register(ctx context.Context, s *claimSchedule) {
	if err := r.writeHeartbeat(ctx, false); err != nil {
		r.claimFailed(ctx, s, err)
		return
	}
	s.succeeded()
	r.failures.Store(0)
	if r.registration.goneIn() > 0 {
		signal(r.wakeHeartbeats) // so that heartbeatLoop plans a heartbeat for that time
	}
}

// goneIn returns HeartbeatResult.GoneIn of the last heartbeat, or zero if that heartbeat had no answer.
func (r *registration) goneIn() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.GoneIn
}

// failed returns the number of heartbeats that have failed since the last answered one.
func (r *registration) failed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

// nextHeartbeat returns the pause before the next heartbeat. The pause is shorter if another relay may
// count as gone before its end: the events of that relay wait for the heartbeat that finds it gone. It is also
// shorter after a failed heartbeat: its session has ended, so the other relays may take this relay for gone, and
// send its events, too, until its next heartbeat.
func (r *Relay) nextHeartbeat() time.Duration {
	pause := jittered(queue.HeartbeatEvery)
	if failures := r.registration.failed(); failures > 0 {
		return min(pause, r.options.OutageBackoff.Delay(failures))
	}
	if in := r.registration.goneIn(); in > 0 {
		pause = min(pause, in+goneMargin)
	}
	return pause
}

// heartbeatLoop updates the relay's row in the table of relays until ctx ends. The same statement
// takes over the rows of dead relays. It is cancelled when flying ends, and not when ctx ends,
// because a cancelled heartbeat may still commit after deregister.
func (r *Relay) heartbeatLoop(ctx, flying context.Context) {
	for backoff.Sleep(ctx, r.nextHeartbeat(), r.wakeHeartbeats) {
		if !r.followUps.due().registered {
			continue
		}
		if err := r.writeHeartbeat(flying, false); err != nil {
			r.log.WarnContext(ctx, "relay cannot show that it is alive: others may look for its events", "error", err)
		}
	}
}

func (r *Relay) writeHeartbeat(ctx context.Context, ended bool) error {
	r.registration.mu.Lock()
	defer r.registration.mu.Unlock()
	low := r.followUps.low(r.inFlight)
	b, err := r.queue.Heartbeat(ctx, r.token, low, r.tenants.lastActive(time.Now()), r.registration.last, ended)
	if err != nil {
		r.registration.last.GoneIn, r.registration.last.Resumed = 0, time.Now() // the heartbeats of others may fail, too
		r.registration.failures++
		return err
	}
	r.registration.failures = 0
	restart := low == "" || !b.Server.Equal(r.registration.last.Server)
	r.registration.last = b
	r.clock.Store(&b.Clock)
	r.followUps.heartbeatWritten(b, restart)
	for _, tenant := range b.Tenants {
		r.tenants.meet(tenant, time.Now())
	}
	return nil
}

// deregister writes into the relay's row that the relay has ended. Otherwise the other relays
// would notice the end only after some missed heartbeats.
func (r *Relay) deregister(closing context.Context) {
	if !r.followUps.due().registered || closing.Err() != nil {
		return
	}
	if err := r.writeHeartbeat(closing, true); err != nil {
		r.log.WarnContext(closing, "relay cannot say that it has ended: others will find out", "error", err)
	}
}

// low returns the relay's low watermark, a snapshot that saw none of the unfinished events. The
// unfinished events are in the lists of followUps and in the batches in flight. low reads the lists
// and the batches in one critical section. While the lists are locked, a batch that is to move into
// a list stays in flight. If a version has left a list, the events that were claimed behind the
// version are in flight already. Two separate reads could miss a batch that moves twice between the
// reads.
func (f *followUps) low(inFlight *inFlight) queue.TxSnapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return queue.Earliest(f.lowOfLists(func(string) bool { return true }), inFlight.low(f.met))
}

// lowOfLists expects the lock. It returns a snapshot that saw none of the unfinished events. The snapshot may have seen
// events in flight. It may also have seen skipped events of paused topics, if these returns false for their type.
func (f *followUps) lowOfLists(these func(kind string) bool) queue.TxSnapshot {
	low := queue.Earliest(f.seen, f.published.low(), f.scanLow, f.met.low(f.scanning), f.met.low(f.searching))
	for kind, skipped := range f.skippedTypes {
		if these(kind) {
			low = queue.Earliest(low, skipped)
		}
	}
	for _, h := range f.held {
		low = queue.Earliest(low, h.lowest(f.met))
	}
	return low
}

// heartbeatWritten records the answer b to a heartbeat. If the relay has inherited events of dead relays
// or of no relay, it scans for them. restart is true if the relay's row is new, or if the database's
// server has changed since the last heartbeat. Then the scan begins at b.Low, which covers the relay's
// own unfinished events, too.
func (f *followUps) heartbeatWritten(b queue.HeartbeatResult, restart bool) {
	f.mu.Lock()
	f.aliveRelays = b.Alive
	if f.meetGone(b.Gone, b.Alive, time.Now()) && b.GoneLow != "" {
		f.addScan(b.GoneLow, time.Now())
	}
	from := b.Inherited
	if restart {
		if f.seen != "" {
			f.expectUnknownLeases()
		}
		from = b.Low
		f.meet(b)
	}
	if from != "" {
		f.addScan(from, time.Now())
	}
	f.mu.Unlock()
	signal(f.wakeClaims)
	signal(f.wakeScans)
}

// meet expects the lock. It notes that the relay has met another server, or its first one, and empties
// the lists. The caller schedules a scan from b.Low, the floor of the meeting. This scan replaces the
// lists, because it finds their events, or notes again that it skips them.
func (f *followUps) meet(b queue.HeartbeatResult) {
	f.met, f.seen = meeting{lifeOf(b.Server), b.Low}, b.Seen
	f.scanLow = ""
	clear(f.skippedTypes)
	f.published.restart(b.Low)
	for _, h := range f.held {
		h.restart(b.Low)
	}
}
