package outbox

import (
	"sync"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// minPerAggregate and maxPerAggregate bound how many versions of one aggregate a claim
	// takes: the lower bound if there are as many, the upper bound as many as a request
	// takes.
	minPerAggregate = 100
	maxPerAggregate = maxRequestMessages
)

// batchLimit is how many versions of one aggregate a claim takes. An aggregate has one
// request on its way at a time, so the duration of a request bounds how many of its events
// leave per second, unless more of them share the request. But a claim is bounded, and one
// aggregate that is far behind must not fill it while others wait. So batchLimit grows as
// long as there is room for all.
type batchLimit struct {
	mu       sync.Mutex
	versions int
}

func (l *batchLimit) limit() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.versions
}

// observe learns from a claim whether there was room for more.
func (l *batchLimit) observe(batches []queue.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// more is how much twice the limit would add, if each batch at the limit has as
	// many events behind it.
	events, bytes, more, moreBytes := 0, 0, 0, 0
	for _, b := range batches {
		events, bytes = events+len(b), bytes+b.Bytes()
		if len(b) >= l.versions {
			more, moreBytes = more+len(b), moreBytes+b.Bytes()
		}
	}
	switch {
	case len(batches) > 1 && (events >= claimEvents || bytes >= claimBytes):
		l.versions = max(minPerAggregate, l.versions/2)
	case more > 0 && events+more <= claimEvents && bytes+moreBytes <= claimBytes:
		l.versions = min(maxPerAggregate, 2*l.versions)
	}
}
