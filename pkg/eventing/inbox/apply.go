package inbox

import (
	"context"
	"time"
)

// process applies batch, with care for events that may end the process: see "Crash loops" in the
// package doc. It first records the starts of the events that may be in a crash loop. Events
// without an earlier start are applied together. An event that was started before is applied
// alone, after another start of it was recorded. Other events of its aggregate are applied alone,
// too. process returns the deliveries that it did not finish before ctx ended.
//
// Before that, process queues the events of blocked aggregates, and records no start of them. They are not
// applied now, and so cannot end the process. A start at each delivery would count against the event.
func (c *Consumer) process(ctx context.Context, batch []*delivery) (unfinished []*delivery) {
	if batch = c.filterBlocked(ctx, batch); len(batch) == 0 {
		return nil
	}
	if err := c.markStarted(ctx, batch); err != nil {
		return batch
	}
	mayKill := map[string]bool{}
	for _, d := range batch {
		if d.startedBefore {
			mayKill[d.key()] = true
		}
	}
	if len(mayKill) == 0 {
		return c.apply(ctx, batch)
	}
	var together, alone []*delivery
	for _, d := range batch {
		if mayKill[d.key()] {
			alone = append(alone, d)
		} else {
			together = append(together, d)
		}
	}
	unfinished = c.apply(ctx, together)
	for _, d := range alone {
		if c.blocked.has(d.key()) { // an event before it was blocked just now
			c.queue(d)
			continue
		}
		if err := c.markStartedAgain(ctx, d); err != nil {
			unfinished = append(unfinished, d)
			continue
		}
		unfinished = append(unfinished, c.apply(ctx, []*delivery{d})...)
	}
	return unfinished
}

// apply handles batch, which mergeDuplicates has ordered. Each delivery is acknowledged, blocked
// or dead-lettered. apply returns the deliveries that it did not reach before ctx ended.
//
// apply waits during an outage of the database. Nothing else is applied meanwhile, so the budget
// fills up and the client stops pulling.
func (c *Consumer) apply(ctx context.Context, batch []*delivery) (unfinished []*delivery) {
	for failures := 1; ; failures++ {
		c.heartbeat()
		batch = c.filterBlocked(ctx, batch)
		if len(batch) == 0 {
			return nil
		}
		began := time.Now()
		tried := c.startAttempt(ctx, batch, began)
		outcomes, err := c.tryBatch(tried.transaction(ctx), batch)
		switch {
		case err == nil:
			tried.committed()
			c.metrics.failing(0)
			c.afterCommit(ctx, batch, outcomes, tried)
			return nil
		case ctx.Err() != nil:
			tried.failed(err, "canceled")
			return batch
		}
		for _, d := range batch {
			d.tried = true
		}
		f := c.classify(ctx, batch, err, began)
		tried.failed(err, f.String())
		switch {
		case f == outage:
			c.waitOut(ctx, "apply", err, failures)
		case len(batch) > 1:
			return c.bisect(ctx, batch, f)
		default:
			return c.eventFailed(ctx, batch[0], err, f)
		}
	}
}

// filterBlocked returns the deliveries that can be applied now. It queues the events of blocked aggregates,
// and blocks the aggregates of unknown events. It dead-letters invalid messages, and acks deliveries that
// are finished, or that another instance has finished.
func (c *Consumer) filterBlocked(ctx context.Context, batch []*delivery) (rest []*delivery) {
	var unknown []*delivery
	for _, d := range batch {
		if d.isUnknown() && !d.finished {
			unknown = append(unknown, d)
		}
	}
	// One statement writes the rows of all unknown events, because an old build may get thousands of them.
	done := c.hold(ctx, ErrUnknown.Error(), unknown...)
	for _, d := range batch {
		switch {
		case d.finished: // more messages may have joined it since
			c.ack(ctx, d)
		case done[d]:
			c.foundDone(ctx, d)
		case c.blocked.has(d.key()):
			c.queue(d)
		case d.isUnknown():
			c.awaitVerdict(ctx, d)
		case d.invalid != nil:
			c.deadLetter(ctx, d, d.invalid, 0)
		default:
			rest = append(rest, d)
		}
	}
	return rest
}

// bisect applies the two halves of a failed batch separately. In the end the event that fails is
// alone, and its aggregate is blocked. The later events of the aggregate then wait. f is the cause
// of the failure.
func (c *Consumer) bisect(ctx context.Context, batch []*delivery, f fault) (unfinished []*delivery) {
	for _, d := range batch {
		d.bisections++
		if f == locked && d.lockWait == 0 {
			d.lockWait = shareOfWait(len(batch))
		}
	}
	half := len(batch) / 2
	unfinished = c.apply(ctx, batch[:half])
	if ctx.Err() != nil { // the consumer ends, and begins no other transaction
		return append(unfinished, batch[half:]...)
	}
	return append(unfinished, c.apply(ctx, batch[half:])...)
}
