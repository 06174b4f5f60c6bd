package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// slotCount bounds the concurrent repairs, because one owner may have many aggregates to repair. It
// also bounds the concurrent publishes of dead letters. Dead letters have slots of their own, so
// that an owner that hangs does not delay them.
const slotCount = 16

// putOffRetry is the pause of an aggregate whose event was put off, because of a lock or for another reason
// (putOff). The cap is high, because each try for a lock may hold up the worker (see maxLockWait).
var putOffRetry = backoff.Policy{Base: 200 * time.Millisecond, Cap: 30 * time.Second}

// reason is why an aggregate is blocked.
type reason int

const (
	openGap reason = iota
	failedEvent
	lockedRow
	lackingStatement
	unknownEvent
	pendingDeadLetter
	reasons
)

func (r reason) String() string {
	return [...]string{"gap", "failed", "locked", "lacking", "unknown", "dead_letter"}[r]
}

// blockedAggregates holds the deliveries of each aggregate that cannot continue now. The first one is the
// head, which blocks the aggregate. The worker goroutine owns byKey. Other goroutines send the key of an
// aggregate to released, and the worker unblocks the aggregate.
type blockedAggregates struct {
	byKey map[string][]*delivery
	// events has the events of the deliveries in byKey.
	events   map[waitingEvent]struct{}
	counts   [reasons]atomic.Int64
	released chan string
	running  sync.WaitGroup

	repairSlots, deadLetterSlots, holdSlot, noteSlot *semaphore.Weighted
}

func newBlockedAggregates() *blockedAggregates {
	return &blockedAggregates{
		byKey:           map[string][]*delivery{},
		events:          map[waitingEvent]struct{}{},
		released:        make(chan string),
		repairSlots:     semaphore.NewWeighted(slotCount),
		deadLetterSlots: semaphore.NewWeighted(slotCount),
		holdSlot:        semaphore.NewWeighted(1),
		noteSlot:        semaphore.NewWeighted(1),
	}
}

func (b *blockedAggregates) has(key string) bool { return b.byKey[key] != nil }

// failing returns how many aggregates are blocked because their events fail.
func (b *blockedAggregates) failing() int64 {
	return b.counts[failedEvent].Load() + b.counts[lackingStatement].Load()
}

// waitingEvent identifies an event. The id is not enough: see "Identity" in the package doc.
type waitingEvent struct {
	id      uuid.UUID
	key     string
	version int64
}

func (d *delivery) waitingEvent() waitingEvent {
	return waitingEvent{d.id(), d.key(), d.event().Version}
}

// add puts d behind the deliveries of its aggregate. copied is true if one of these deliveries has d's
// event already.
func (b *blockedAggregates) add(d *delivery) (copied bool) {
	e := d.waitingEvent()
	_, copied = b.events[e]
	b.events[e] = struct{}{}
	b.byKey[e.key] = append(b.byKey[e.key], d)
	return copied
}

// unblock ends the block of an aggregate and returns its deliveries.
func (b *blockedAggregates) unblock(key string) []*delivery {
	blocked := b.byKey[key]
	delete(b.byKey, key)
	for _, d := range blocked {
		delete(b.events, d.waitingEvent())
	}
	return blocked
}

// all unblocks all aggregates and returns their deliveries. The method waits for the goroutines of the
// blocks, so the context of the blocks must have ended.
func (b *blockedAggregates) all() (blocked []*delivery) {
	b.running.Wait()
	for key := range b.byKey {
		blocked = append(blocked, b.unblock(key)...)
	}
	return blocked
}

// queue puts d behind the deliveries of its blocked aggregate. If d's event is among them already,
// then d is a copy, because mergeDuplicates merges the two before the event is applied. A copy gives
// its part of the budget back, except for some 1 KiB (perMessage). So the deliveries of an event
// that waits for hours use the budget once, however often the broker delivers it.
func (c *Consumer) queue(d *delivery) {
	if c.blocked.add(d) && d.isEvent() {
		c.budget.release(d.strip())
	}
	d.lockWait = 0 // the batch that has met a lock is over
}

// block blocks d's aggregate until the function until returns. If the aggregate is blocked
// already, d joins that block, and until is not called.
func (c *Consumer) block(ctx context.Context, d *delivery, why reason, until func(context.Context)) {
	b, key := c.blocked, d.key()
	blocked := b.has(key)
	c.queue(d)
	if blocked {
		return
	}
	b.counts[why].Add(1) // now, because the worker's next batch may come before the goroutine runs
	b.running.Go(func() {
		defer b.counts[why].Add(-1) // only when the worker has taken the aggregate: lockWait counts it until then
		until(ctx)
		select {
		case b.released <- key:
		case <-ctx.Done():
		}
	})
}

// isExcused reports whether a time limit that d has met alone spends no attempt.
func (c *Consumer) isExcused(d *delivery, cause error) bool {
	return !eventing.IsPermanent(cause) && (c.slow.add(d.key()) || d.firstLimit())
}

// eventFailed handles an event that failed alone. The event is tried again after a pause, or
// dead-lettered. eventFailed returns d if ctx ended before either was decided.
func (c *Consumer) eventFailed(ctx context.Context, d *delivery, cause error, class fault) []*delivery {
	ctx = d.in(ctx)
	if class == locked || class == lacking || class == timedOut && c.isExcused(d, cause) {
		return c.putOff(ctx, d, cause, class)
	}
	if p, ok := errors.AsType[*panicError](cause); ok {
		c.logFor(d).ErrorContext(ctx, "handler panicked", "panic", p.value, "stack", string(p.stack))
	}
	attempts, done, err := c.store.countAttempt(ctx, d, cause, class)
	if ctx.Err() != nil {
		return []*delivery{d}
	}
	if err == nil {
		d.starts, d.startedBefore = 0, false // the attempt has ended, and the row says so
	}
	pause := c.options.RetryBackoff.Delay(max(1, attempts))
	switch {
	case err != nil:
		// The database has just become unavailable. The failure is not counted, and
		// will happen again.
		c.logFor(d).WarnContext(ctx, "attempt not counted", "error", err)
	case done:
		c.foundDone(ctx, d)
		return nil
	case attempts >= c.options.MaxAttempts, eventing.IsPermanent(cause):
		c.deadLetter(ctx, d, cause, attempts)
		return nil
	}
	c.logFor(d).WarnContext(ctx, "event failed, trying again", "error", cause, "class", class.String(),
		"attempt", attempts, "retry_in_ms", pause.Milliseconds())
	c.block(ctx, d, failedEvent, func(ctx context.Context) { backoff.Sleep(ctx, pause, nil) })
	return nil
}

// hold writes inbox rows with the status held, for the events of batch for which it has not done so yet.
// These events cannot be applied now, and their messages may be in hand for long. The held rows keep the
// safe position of the checkpoints before the events, whichever instance has the messages. If the rows
// cannot be written, only this instance's offset stays before the events (see offset), until hold is called
// for them again.
//
// done has the events that another instance has applied meanwhile. The caller acknowledges them.
func (c *Consumer) hold(ctx context.Context, why string, batch ...*delivery) (done map[*delivery]bool) {
	batch = slices.DeleteFunc(batch, func(d *delivery) bool { return d.held || !d.isEvent() })
	if len(batch) == 0 {
		return nil
	}
	done, err := c.store.hold(ctx, why, false, batch...)
	if err != nil {
		c.logFor(batch[0]).DebugContext(ctx, "events not written as held", "error", err, "events", len(batch))
		return nil
	}
	for _, d := range batch {
		d.held = !done[d]
	}
	return done
}

// putOff blocks d's aggregate for a pause and counts no failure of d. The cause is one of these:
//
//   - Another transaction holds a lock that d needs.
//   - The database lacks something that d needs.
//   - Events of several aggregates have met a time limit (maxSlow).
//   - d has met a time limit for the first time (firstLimit).
func (c *Consumer) putOff(ctx context.Context, d *delivery, cause error, class fault) []*delivery {
	if d.starts > 0 { // the attempt has ended, and this process lives
		switch rows, err := c.store.unmarkStarted(ctx, []*delivery{d}); {
		case err != nil:
			c.logFor(d).DebugContext(ctx, "start not taken back", "error", err)
		case rows > 0:
			d.starts, d.startedBefore = 0, false
		}
	}
	if c.hold(ctx, class.String()+": "+cause.Error(), d)[d] {
		c.foundDone(ctx, d)
		return nil
	}
	d.putOffs++
	pause := putOffRetry.Delay(d.putOffs)
	level := slog.LevelDebug // all events may fail for one reason, and each is tried again and again
	if c.putOffLines.Allow() {
		level = slog.LevelWarn
	}
	c.logFor(d).Log(ctx, level, "event put off, its aggregate waits", "error", cause, "class", class.String(),
		"times", d.putOffs, "retry_in_ms", pause.Milliseconds())
	why := map[fault]reason{locked: lockedRow, lacking: lackingStatement, timedOut: failedEvent}[class]
	c.block(ctx, d, why, func(ctx context.Context) { backoff.Sleep(ctx, pause, nil) })
	return nil
}
