package outbox

import (
	"context"
	"time"
)

// lastTime is how long a relay goes on claiming new events and starting requests after Run's context has ended. It is a part of
// drainTime, so that the requests have time for their answers.
const lastTime = time.Second

// lastClaims claims the new events that were committed before Run's context ended, and the events behind those that are published
// meanwhile. Without it such an event would wait for another relay, or for the next process. lastClaims ends when a claim has left no
// event in flight, when last ends, or with the first failure: then other relays find the events by this relay's low. The claims are
// like all others, so at each moment the low covers their events.
func (r *Relay) lastClaims(last, flying context.Context, claimed chan<- *leasedBatch) {
	var s claimSchedule
	for last.Err() == nil && r.failures.Load() == 0 && r.followUps.due().registered {
		paused := r.pausedTypes()
		r.followUps.setPausedTypes(paused)
		if len(paused) == len(r.pauses) || !r.inFlight.reserve(byClaim) {
			return
		}
		if err := r.claimWithin(flying, &s, paused, claimed); err != nil || r.inFlight.total() == 0 {
			return
		}
		select {
		case <-r.followUps.wakeClaims:
		case <-r.inFlight.room[byClaim]:
		case <-last.Done():
		}
	}
}
