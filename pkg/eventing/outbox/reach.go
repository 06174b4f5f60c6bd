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
type reach struct {
	mu  sync.Mutex
	per int
}

func (r *reach) limit() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.per
}

// learn takes from what a claim took whether there was room for more.
func (r *reach) learn(runs []queue.Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// More is what twice the reach would add, if all that is as long has as much behind.
	events, bytes, more, moreBytes := 0, 0, 0, 0
	for _, run := range runs {
		events, bytes = events+len(run), bytes+run.Bytes()
		if len(run) >= r.per {
			more, moreBytes = more+len(run), moreBytes+run.Bytes()
		}
	}
	switch {
	case len(runs) > 1 && (events >= claimEvents || bytes >= claimBytes):
		r.per = max(minPerAggregate, r.per/2)
	case more > 0 && events+more <= claimEvents && bytes+moreBytes <= claimBytes:
		r.per = min(maxPerAggregate, 2*r.per)
	}
}
