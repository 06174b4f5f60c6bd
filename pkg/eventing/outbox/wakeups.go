package outbox

import (
	"context"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/notify"
)

// notifyEvery is the least time between two notifications about this process's commits.
const notifyEvery = time.Second

// notifyLoop notifies the relays of other processes of new events: at once, and then at
// most once a second. No promise depends on it, because relays poll.
func (r *Relay) notifyLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.notifyOthers:
		}
		r.notifier.Publish("") // no keys: a relay claims whatever is new
		backoff.Sleep(ctx, notifyEvery, nil)
	}
}

// onNotify wakes the claims when another relay has notified this one, and when
// notifications begin to arrive: no notification has told of earlier commits.
func (r *Relay) onNotify(notify.Notification) { signal(r.wakeups) }
