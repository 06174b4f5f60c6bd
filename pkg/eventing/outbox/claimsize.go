package outbox

import (
	"sync"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// A claim takes at least so many aggregates, and at most.
	minAggregates, maxAggregates = 16, 500
	// minPerAggregate and maxPerAggregate bound how many versions of one aggregate a claim
	// takes: the lower bound if there are as many, the upper bound as many as a request
	// takes.
	minPerAggregate = 100
	maxPerAggregate = maxRequestMessages
)

// claimSize is how many aggregates, and how many versions of one, the next claim takes. It
// learns from each claim.
//
// An aggregate has one request on its way at a time, so the duration of a request bounds
// how many of its events leave per second, unless more of them share the request. But a
// claim is bounded, and one aggregate that is far behind must not fill it while others
// wait. So the number of versions grows as long as there is room for all.
type claimSize struct {
	mu sync.Mutex
	// aggregates are likely to fill a claim.
	aggregates, versions int
}

func newClaimSize() *claimSize {
	return &claimSize{aggregates: maxAggregates / 5, versions: minPerAggregate}
}

func (l *claimSize) limits() (aggregates, versions int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.aggregates, l.versions
}

// observe learns from a claim how many aggregates fill one, and whether there was room for
// more versions.
func (l *claimSize) observe(batches []queue.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// more is how much twice the versions would add, if each batch at the limit has as
	// many events behind it.
	events, bytes, more, moreBytes := 0, 0, 0, 0
	for _, b := range batches {
		events, bytes = events+len(b), bytes+b.Bytes()
		if len(b) >= l.versions {
			more, moreBytes = more+len(b), moreBytes+b.Bytes()
		}
	}
	if events > 0 {
		l.aggregates = max(minAggregates, min(maxAggregates, claimEvents*len(batches)/events))
	}
	switch {
	case len(batches) > 1 && (events >= claimEvents || bytes >= claimBytes):
		l.versions = max(minPerAggregate, l.versions/2)
	case more > 0 && events+more <= claimEvents && bytes+moreBytes <= claimBytes:
		l.versions = min(maxPerAggregate, 2*l.versions)
	}
}
