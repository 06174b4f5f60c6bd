package outbox

import (
	"context"
	"math/rand/v2"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// purgeEvery is how long after one pass over the table the next begins, and
	// purgeLook how often a relay looks whether there is a part of it to do.
	purgeEvery = time.Hour
	purgeLook  = time.Minute
	// purgeStretch is how many pages a relay takes at a time, 64 MB, and purgePause is
	// the pause between two statements on them.
	purgeStretch = 64 * queue.PurgePages
	purgePause   = 50 * time.Millisecond
)

// purgeAgain is the pause after a purge that failed.
var purgeAgain = backoff.Policy{Base: time.Second, Cap: time.Minute}

// purge deletes old published events, its share of the table's pages. An error costs a
// pause and nothing of the pass.
func (r *Relay) purge(ctx context.Context) {
	failures := 0
	failed := func(err error) {
		if ctx.Err() != nil {
			return
		}
		failures++
		r.log.WarnContext(ctx, "published events not purged", "error", err, "failures", failures)
		backoff.Sleep(ctx, purgeAgain.Delay(failures), nil)
	}
	for ctx.Err() == nil {
		first, due, err := r.queue.NextStretch(ctx, purgeEvery, purgeStretch)
		switch {
		case err != nil:
			failed(err)
			continue
		case !due:
			backoff.Sleep(ctx, purgeLook/2+rand.N(purgeLook/2), nil)
			continue
		}
		for page := first; page < first+purgeStretch && ctx.Err() == nil; {
			_, more, err := r.queue.Purge(ctx, r.options.Retention, page)
			if err != nil {
				failed(err)
				continue
			}
			failures = 0
			if page += queue.PurgePages; !more {
				break
			}
			backoff.Sleep(ctx, purgePause, nil)
		}
	}
}
