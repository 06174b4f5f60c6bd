package inbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/checkpoint"
)

// begin queues BEGIN and the settings of a batch's transaction. They are sent together with the first
// statements of the transaction. wait bounds the wait for each lock. The plans of these
// first statements do not depend on statistics, so the session uses generic plans and keeps them.
func begin(b *pgx.Batch, wait time.Duration) {
	b.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	b.Queue(`SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('lock_timeout', $1, true)`,
		strconv.FormatInt(wait.Milliseconds(), 10))
}

// planEachTime queues a setting that makes Postgres plan each further statement again, for the
// arrays in its parameters. A kept plan from the time before the tables filled up would scan the
// tables for each batch, until the next ANALYZE. A handler may set plan_cache_mode for its own
// statements if their plans can be kept (txn.KeepPlans).
func planEachTime(b *pgx.Batch) {
	b.Queue(`SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`)
}

// The times that a transaction waits for a lock. Most writers hold a lock for milliseconds. A lock that
// is still held after maxLockWait may be held for much longer. If one tenant has many rows with such
// locks, the other tenants must not wait for maxLockWait again and again. Three rules bound the waits of
// the worker:
//
//   - The parts of a batch that has met a lock share maxLockWait, between minLockWait and
//     shortLockWait each.
//   - While aggregates wait for locks, another batch waits for shortLockWait.
//   - The tries of events that were put off share maxLockWait with each other, like the parts.
const (
	// maxLockWait is the longest wait for a lock.
	maxLockWait = time.Second
	// shortLockWait is longer than most writers hold a lock. So on a row that such writers lock one after
	// the other, a few events that were put off still get the lock.
	shortLockWait = 50 * time.Millisecond
	// minLockWait is the shortest wait for a lock.
	minLockWait = 2 * time.Millisecond
)

// shareOfWait is how long each of n transactions waits for a lock if they share maxLockWait.
func shareOfWait(n int) time.Duration {
	return max(minLockWait, min(shortLockWait, maxLockWait/time.Duration(n)))
}

// lockWait is how long batch's transaction waits for each lock.
func (c *Consumer) lockWait(batch []*delivery) time.Duration {
	waiting := int(c.blocked.counts[lockedRow].Load())
	switch {
	case slices.ContainsFunc(batch, (*delivery).wasPutOff):
		return shareOfWait(waiting + 1)
	case batch[0].lockWait > 0:
		return batch[0].lockWait
	case waiting > 0:
		return shortLockWait
	}
	return maxLockWait
}

// tryBatch applies batch in one transaction. If Options have Checkpoints, the transaction also saves the
// offset of batch. tryBatch returns the outcome of each event. A duplicate has no outcome. If ctx ends, the
// transaction has drainTime left.
func (c *Consumer) tryBatch(ctx context.Context, batch []*delivery) (map[uuid.UUID]Outcome, error) {
	draining, end := after(ctx, drainTime)
	defer end()
	txCtx, cancel := context.WithTimeout(draining, batchTimeout)
	defer cancel()
	start := time.Now()
	first := &pgx.Batch{}
	begin(first, c.lockWait(batch))
	offset, newest := c.offset(batch)
	saved := c.options.Checkpoints.Save(first, c.store.instance.String(), offset, newest)
	outcomes, err := c.transact(txCtx, first, batch)
	saved.End(ctx, err)
	if err == nil {
		c.metrics.batch(ctx, len(batch), time.Since(start))
	}
	return outcomes, err
}

// transact runs the transaction that the statements in first begin, and commits it.
func (c *Consumer) transact(ctx context.Context, first *pgx.Batch, batch []*delivery) (map[uuid.UUID]Outcome, error) {
	tx, rows, err := c.store.accept(ctx, first, batch)
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	if err != nil {
		return nil, err
	}
	outcomes := make(map[uuid.UUID]Outcome, len(batch))
	var changes []Change
	for _, d := range batch {
		switch {
		case !rows.notDone[d]:
		case d.lost:
			outcomes[d.id()] = Lost
		default:
			changes = append(changes, d.change)
		}
	}
	if err = c.change(ctx, tx, changes, outcomes); err == nil {
		err = c.store.settle(ctx, tx, rows, outcomes)
	}
	if err != nil {
		if tx.Conn().IsClosed() {
			err = lostConnectionError{err}
		}
		return nil, err
	}
	return outcomes, tx.Commit(ctx)
}

// change lets the handler apply changes, and adds their outcomes to outcomes.
func (c *Consumer) change(ctx context.Context, tx pgx.Tx, changes []Change, outcomes map[uuid.UUID]Outcome) error {
	if len(changes) == 0 {
		return nil
	}
	done, err := c.handler.do(ctx, tx, changes)
	if err == nil {
		// A handler that ignores ctx and returns late counts as slow. Without this error its COMMIT would
		// fail as in an outage, and the batch would be tried for ever.
		err = ctx.Err()
	}
	if err != nil {
		return handlerError{fmt.Errorf("apply: %w", err)}
	}
	for i, o := range done {
		outcomes[changes[i].Event.ID] = o
	}
	return nil
}

// offset returns the offset that batch's transaction saves, and the greatest publish time in batch. The
// offset is that of the newest message in batch. But the offset is before the first message of each blocked
// aggregate, and before the first waiting message of each tenant, because a seek to the offset acknowledges
// all messages up to it. If an event of batch is blocked by this transaction, the offset still counts the
// event's message. The event's held inbox row then keeps the safe position before the event.
func (c *Consumer) offset(batch []*delivery) (o checkpoint.Offset, newest time.Time) {
	m := slices.MaxFunc(batch, func(a, b *delivery) int {
		return a.message().PublishTime.Compare(b.message().PublishTime)
	}).message()
	o, newest = checkpoint.Offset{MessageID: m.ID, PublishTime: m.PublishTime}, m.PublishTime
	before := func(d *delivery) {
		if m := d.message(); !m.PublishTime.After(o.PublishTime) {
			o = checkpoint.Offset{MessageID: m.ID, PublishTime: m.PublishTime.Add(-time.Microsecond)}
		}
	}
	for _, blocked := range c.blocked.byKey {
		before(blocked[0])
	}
	for _, l := range c.waiting.lanes {
		before(l.messages[0])
	}
	return o, newest
}
