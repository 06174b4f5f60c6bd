package outbox

import (
	"sync"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const (
	// minAggregates and maxAggregates bound the field aggregates of claimSize.
	minAggregates, maxAggregates = 16, 500
	// minPerAggregate and maxPerAggregate bound the field versions of claimSize.
	// maxPerAggregate is the number of messages that a publish request takes.
	minPerAggregate = 100
	maxPerAggregate = maxRequestMessages
)

// claimSize is how many aggregates the next claim takes, and how many versions of each. It adapts
// to the result of each claim.
//
// An aggregate has only one request on its way at a time. So the more events share a request, the
// more events of the aggregate leave per second. But the size of a claim is bounded, and an
// aggregate that is far behind must not fill a claim while other aggregates wait. So the number of
// versions grows only while the claims have room for all aggregates.
type claimSize struct {
	mu sync.Mutex
	// aggregates is the number of aggregates that are likely to fill a claim. versions is the
	// limit of versions of one aggregate.
	aggregates, versions int
}

func newClaimSize() *claimSize {
	return &claimSize{aggregates: maxAggregates / 5, versions: minPerAggregate}
}

func (c *claimSize) limits() (aggregates, versions int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aggregates, c.versions
}

// observe adapts c to the batches of a claim. It computes how many aggregates would fill a claim of
// full size, and whether there was room for more versions. limit is the claim's limit of events.
func (c *claimSize) observe(batches []queue.Batch, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// more and moreBytes are the events and the bytes by which the claim would grow if the limit
	// of versions doubled. They assume that each batch that has reached the limit has as many
	// events again behind it.
	events, bytes, more, moreBytes := 0, 0, 0, 0
	for _, b := range batches {
		events, bytes = events+len(b), bytes+b.Bytes()
		if len(b) >= c.versions {
			more, moreBytes = more+len(b), moreBytes+b.Bytes()
		}
	}
	if events > 0 {
		c.aggregates = max(minAggregates, min(maxAggregates, claimEvents*len(batches)/events))
	}
	switch {
	case len(batches) > 1 && (events >= limit || bytes >= claimBytes):
		c.versions = max(minPerAggregate, c.versions/2)
	case more > 0 && events+more <= limit && bytes+moreBytes <= claimBytes:
		c.versions = min(maxPerAggregate, 2*c.versions)
	}
}
