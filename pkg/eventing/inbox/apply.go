package inbox

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
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
		batch = c.divert(ctx, batch)
		if len(batch) == 0 {
			return nil
		}
		outcomes, err := c.try(ctx, batch)
		switch {
		case err == nil:
			c.metrics.failing(0)
			c.settle(ctx, batch, outcomes)
			return nil
		case ctx.Err() != nil:
			return batch
		case !isOutage(err):
			return c.isolate(ctx, batch, err)
		}
		c.metrics.failing(failures)
		pause := outage.Delay(failures)
		c.log.WarnContext(ctx, "cannot apply events, holding them", "error", err, "events", len(batch), "retry_in_ms", pause.Milliseconds())
		c.beat()
		eventing.Sleep(ctx, pause, nil)
	}
}

// divert takes out what must not be applied now: messages that are no events,
// and events behind one of their aggregate that is held.
func (c *Consumer) divert(ctx context.Context, batch []*delivery) []*delivery {
	var rest []*delivery
	for _, d := range batch {
		switch {
		case d.invalid != nil:
			c.bury(ctx, d, d.invalid, 0)
		case c.holds.join(d):
		default:
			rest = append(rest, d)
		}
	}
	return rest
}

// isolate narrows a failed batch down to the event that fails, and settles that
// one alone.
func (c *Consumer) isolate(ctx context.Context, batch []*delivery, err error) []*delivery {
	if len(batch) == 1 {
		return c.fail(ctx, batch[0], err)
	}
	half := len(batch) / 2
	unsettled := c.apply(ctx, batch[:half])
	return append(unsettled, c.apply(ctx, batch[half:])...)
}

// try applies batch in one transaction and returns each event's outcome. The
// transaction outlives ctx by drainTime.
func (c *Consumer) try(ctx context.Context, batch []*delivery) (map[uuid.UUID]Outcome, error) {
	txCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		eventing.Sleep(txCtx, drainTime, nil)
		cancel()
	})()
	start := time.Now()
	outcomes := make(map[uuid.UUID]Outcome, len(batch))
	err := pgx.BeginFunc(txCtx, c.store.db, func(tx pgx.Tx) error {
		fresh, err := c.store.accept(txCtx, tx, batch)
		if err != nil {
			return err
		}
		var gaps []uuid.UUID
		for _, d := range batch {
			if !fresh[d.event.ID] {
				continue // done before: the outcome stays zero, a duplicate
			}
			outcome, err := c.handle(txCtx, tx, d.event)
			if err != nil {
				return fmt.Errorf("apply %s version %d of %s: %w", d.event.Type, d.event.Version, d.event.Key(), err)
			}
			outcomes[d.event.ID] = outcome
			if outcome == Gap {
				gaps = append(gaps, d.event.ID)
			}
		}
		return c.store.hold(txCtx, tx, gaps)
	})
	if err == nil {
		c.metrics.batch(ctx, len(batch), time.Since(start))
	}
	return outcomes, err
}

// handle calls the service. A panic is the event's own failure: the process
// lives, and the message must not come back for ever.
func (c *Consumer) handle(ctx context.Context, tx pgx.Tx, e eventing.Event) (o Outcome, err error) {
	ctx, span := startProcess(ctx, c.store.consumer, e)
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v", p)
			c.log.ErrorContext(ctx, "handler panicked", append(e.LogAttrs(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))...)
		}
		if err != nil {
			span.RecordError(err)
		}
		span.End()
	}()
	return c.handler.Apply(ctx, tx, e)
}

// settle acknowledges what a committed transaction has dealt with, and holds the
// aggregates that have a gap.
func (c *Consumer) settle(ctx context.Context, batch []*delivery, outcomes map[uuid.UUID]Outcome) {
	var moved []string
	for _, d := range batch {
		o := outcomes[d.event.ID]
		c.metrics.handled(ctx, o, d)
		c.log.DebugContext(ctx, "event handled", append(d.logAttrs(), "outcome", outcomeName(o))...)
		if o == Gap {
			c.repair(ctx, d)
			continue
		}
		if o == Applied {
			moved = append(moved, d.event.Key())
		}
		// The effect is committed, by this delivery or an earlier one.
		d.ack()
	}
	if len(moved) > 0 {
		c.handler.Committed(moved...)
	}
}

func outcomeName(o Outcome) string {
	if o == 0 {
		return "duplicate"
	}
	return o.String()
}
