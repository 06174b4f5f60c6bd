package outbox

import (
	"context"
	"time"
)

// lastTime is how long a relay goes on claiming new events and starting requests after Run's context has ended. It is a part of
// drainTime, so that the requests have time for their answers.
const lastTime = time.Second

// lastClaims claims the new events that were committed before Run's context ended, and the events behind those that are published
// meanwhile. Without it such an event would wait for another relay, or for the next process. Without room for a claim, lastClaims waits
// until settled batches have left room. It ends when a claim has left no event in flight, when last ends, or with the first failure:
// then other relays find the events by this relay's low. The claims are like all others, so at each moment the low covers their events.
func (r *Relay) lastClaims(last, flying context.Context, toPublish chan<- *leasedBatch) {
	var s claimSchedule
	for last.Err() == nil && r.failures.Load() == 0 && r.followUps.due().registered {
		paused := r.pausedTypes()
		r.followUps.setPausedTypes(paused)
		if len(paused) == len(r.pauses) {
			return
		}
		if !r.inFlight.reserve(byClaim) {
			r.waitForRoom(last)
			continue
		}
		if err := r.claimWithin(flying, &s, paused, toPublish); err != nil || !r.mayClaimMore(last) {
			return
		}
	}
}

// waitForRoom waits until there may be room for a claim, or until last has ended.
func (r *Relay) waitForRoom(last context.Context) {
	select {
	case <-r.inFlight.room[byClaim]:
	case <-last.Done():
	}
}

// mayClaimMore waits until there may be more events for the last claims, and returns true. It returns false if no event is in
// flight, or if last has ended.
func (r *Relay) mayClaimMore(last context.Context) bool {
	for {
		// The settler signals wakeClaims before it removes the batch. So without an event in flight, a signal shows that a batch was
		// settled after the last claim had begun. That claim cannot have the events behind the batch.
		if r.inFlight.total() == 0 && len(r.followUps.wakeClaims) == 0 {
			return false
		}
		select {
		case <-r.followUps.wakeClaims:
			return true
		case <-r.inFlight.room[byClaim]: // a batch may be gone; the claim itself has signalled room, too, so this is no reason to claim
		case <-last.Done():
			return false
		}
	}
}
