package outbox

import (
	"sync"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// minPerAggregate and maxPerAggregate are how many versions of one aggregate a
	// claim takes, at least if there are as many, and at most: one request's.
	minPerAggregate = 100
	maxPerAggregate = maxRequestMessages
)

// reach is how many versions of one aggregate a claim takes. An aggregate has one
// request on its way at a time, so the time of that bounds how many events of it leave
// per second unless more of them share it. But a claim is bounded, and one aggregate
// that is far behind is not to fill it while others wait: reach grows as far as all
// find room.
type batchLimit struct {
	mu       sync.Mutex
	versions int
}

func (r *batchLimit) limit() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.versions
}

// learn takes from what a claim took whether there was room for more.
func (r *batchLimit) observe(runs []queue.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// More is what twice the reach would add, if all that is as long has as much behind.
	events, bytes, more, moreBytes := 0, 0, 0, 0
	for _, run := range runs {
		events, bytes = events+len(run), bytes+run.Bytes()
		if len(run) >= r.versions {
			more, moreBytes = more+len(run), moreBytes+run.Bytes()
		}
	}
	switch {
	case len(runs) > 1 && (events >= claimEvents || bytes >= claimBytes):
		r.versions = max(minPerAggregate, r.versions/2)
	case more > 0 && events+more <= claimEvents && bytes+moreBytes <= claimBytes:
		r.versions = min(maxPerAggregate, 2*r.versions)
	}
}
