package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/backoff"
)

// apply settles batch, which fold has ordered: each delivery is acknowledged,
// held for later, or dead-lettered. It returns what it could not get to before
// ctx ended.
//
// An outage of the database is waited out here. Nothing else is applied
// meanwhile, the channel behind fills up, and the client stops pulling: that is
// the circuit. The client keeps the leases, so an outage costs no attempts.
func (c *Consumer) apply(ctx context.Context, batch []*delivery) (unsettled []*delivery) {
	for failures := 1; ; failures++ {
		c.beat()
		batch = c.divert(ctx, batch)
		if len(batch) == 0 {
			return nil
		}
		began := time.Now()
		outcomes, err := c.try(ctx, batch)
		switch {
		case err == nil:
			c.metrics.failing(0)
			c.settle(ctx, batch, outcomes, began)
			return nil
		case ctx.Err() != nil:
			return batch
		}
		for _, d := range batch {
			d.tried = true
		}
		f := c.judge(ctx, err, began)
		switch {
		case f == outage:
			c.waitOut(ctx, "apply", err, failures)
		case len(batch) > 1:
			return c.isolate(ctx, batch)
		default:
			return c.fail(ctx, batch[0], err, f)
		}
	}
}

// divert takes out what must not be applied now: events behind one of their
// aggregate that is held, and what belongs into the dead letters.
func (c *Consumer) divert(ctx context.Context, batch []*delivery) (rest []*delivery) {
	for _, d := range batch {
		switch {
		case d.settled: // and whatever has joined it since
			c.ack(ctx, d)
		case c.holds.has(d.key()):
			c.holdBehind(d)
		case errors.Is(d.invalid, ErrUnknown) && !d.known:
			c.ponder(ctx, d)
		case d.invalid != nil:
			c.bury(ctx, d, d.invalid, 0)
		default:
			rest = append(rest, d)
		}
	}
	return rest
}

// isolate narrows a failed batch down to the event that fails. Those behind it
// in its aggregate then find it held, and wait.
func (c *Consumer) isolate(ctx context.Context, batch []*delivery) (unsettled []*delivery) {
	for _, d := range batch {
		d.narrowed++
	}
	half := len(batch) / 2
	unsettled = c.apply(ctx, batch[:half])
	if ctx.Err() != nil { // that was the transaction in hand
		return append(unsettled, batch[half:]...)
	}
	return append(unsettled, c.apply(ctx, batch[half:])...)
}

// beginBatch has every statement planned for the arrays that it brings. A plan
// of before the tables filled up would scan them for each batch until the next
// ANALYZE. And it bounds the wait for each lock.
func beginBatch(batch []*delivery) string {
	return fmt.Sprintf(`BEGIN; SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL lock_timeout = %d`,
		lockWait(batch).Milliseconds())
}

// How long a transaction waits for a lock. It is halved with the batch, so that
// one row that somebody has locked costs all others little more than the first
// wait, and short for what is tried again.
const (
	maxLockWait = time.Second
	minLockWait = 50 * time.Millisecond
)

func lockWait(batch []*delivery) time.Duration {
	if batch[0].waits > 0 {
		return minLockWait
	}
	return max(minLockWait, maxLockWait>>batch[0].narrowed)
}

// try applies batch in one transaction and returns each event's outcome; a
// duplicate has none. The transaction outlives ctx by drainTime.
func (c *Consumer) try(ctx context.Context, batch []*delivery) (map[uuid.UUID]Outcome, error) {
	txCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		backoff.Sleep(txCtx, drainTime, nil)
		cancel()
	})()
	start := time.Now()
	outcomes := make(map[uuid.UUID]Outcome, len(batch))
	err := pgx.BeginTxFunc(txCtx, c.store.db, pgx.TxOptions{BeginQuery: beginBatch(batch)}, func(tx pgx.Tx) error {
		fresh, err := c.store.accept(txCtx, tx, batch)
		if err != nil {
			return err
		}
		var changes []Change
		for _, d := range batch {
			switch {
			case !fresh[d]:
			case d.lost:
				outcomes[d.id()] = Lost
			default:
				changes = append(changes, d.change)
			}
		}
		if len(changes) == 0 {
			return nil
		}
		done, err := c.handler.do(txCtx, tx, changes)
		if err != nil {
			return handlerError{fmt.Errorf("apply: %w", err)}
		}
		var waiting []uuid.UUID
		for i, o := range done {
			outcomes[changes[i].Event.ID] = o
			if o.needsOwner() {
				waiting = append(waiting, changes[i].Event.ID)
			}
		}
		return c.store.hold(txCtx, tx, waiting, "waiting for a repair from the owner")
	})
	if err == nil {
		c.metrics.batch(ctx, len(batch), time.Since(start))
	}
	return outcomes, err
}
