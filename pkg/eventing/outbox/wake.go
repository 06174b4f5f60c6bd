package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
)

// notifyEvery is how often, at most, a relay tells the others of its process's
// commits.
const notifyEvery = time.Second

// notify tells the relays of other processes that there are new events: at once,
// and then no more often than once a second. Nothing depends on it: relays poll.
func (r *Relay) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.tell:
		}
		r.bell.Ring("") // there are no names for what is new
		backoff.Sleep(ctx, notifyEvery, nil)
	}
}

// heard has the relay look when another one has rung, and when it begins to hear:
// whatever was committed before was not told of.
func (r *Relay) heard(notify.Bulletin) { signal(r.woken) }
