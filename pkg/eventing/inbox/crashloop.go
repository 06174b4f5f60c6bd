package inbox

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// maxStarts is how many times an event may be started without a recorded end. After
	// that it counts as the cause of the process's end.
	maxStarts = 3
	// uncleanStartTime is how long a start after an unclean end records the starts of
	// events: the leases of the former process have ended by then.
	uncleanStartTime = 2 * time.Minute
)

// register writes that this consumer runs, which it takes back when it ends well. If
// another instance has not done that, the next deliveries may be in a crash loop: one of
// them may have ended that instance. A neighbour that is alive looks the same, and costs a
// commit per batch for a while.
func (c *Consumer) register(ctx context.Context) {
	_ = c.persist(ctx, "enter", func() error {
		others, err := c.store.register(ctx)
		if err == nil && others {
			c.uncleanStartUntil = time.Now().Add(uncleanStartTime)
		}
		return err
	})
}

// process applies batch, with care for events that may end the process. Counting every
// start would cost a commit per batch, so it is done only for events that may be in a crash
// loop: those that the broker delivers again, and, where it does not count deliveries,
// those that arrive after an unclean start. At first they are recorded together and applied
// together. If the row shows that an event was started before, it is counted and applied
// alone. So an event that is not at fault is counted once, for the batch that it shared
// with the faulty one, and then succeeds alone.
func (c *Consumer) process(ctx context.Context, batch []*delivery) (unfinished []*delivery) {
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
		if err := c.markStartedAgain(ctx, d); err != nil {
			unfinished = append(unfinished, d)
			continue
		}
		unfinished = append(unfinished, c.apply(ctx, []*delivery{d})...)
	}
	return unfinished
}

// markStarted records the first start of the events in batch that may be in a crash loop,
// and marks those that were started before. Its error is that of ctx.
func (c *Consumer) markStarted(ctx context.Context, batch []*delivery) error {
	var suspects []*delivery
	for _, d := range batch {
		if d.starts == 0 && d.invalid == nil && !d.finished && c.mayCrashLoop(d) {
			suspects = append(suspects, d)
		}
	}
	if len(suspects) == 0 {
		return ctx.Err()
	}
	return c.persist(ctx, "begin", func() error {
		first, before, err := c.store.markStarted(ctx, suspects)
		if err != nil {
			return err
		}
		for _, d := range suspects {
			if first[d] {
				d.starts = 1
			}
			d.startedBefore = before[d]
		}
		return nil
	})
}

// markStartedAgain records that d, which is alone, is started once more. After too many
// starts, d belongs in the dead letters. Its error is that of ctx.
func (c *Consumer) markStartedAgain(ctx context.Context, d *delivery) error {
	if !d.startedBefore || d.starts > 0 || d.invalid != nil {
		return ctx.Err()
	}
	return c.persist(ctx, "begin", func() (err error) {
		if d.starts, err = c.store.markStartedAgain(ctx, d); d.starts > maxStarts {
			d.invalid = fmt.Errorf("the process ended %d times while applying it", d.starts-1)
		}
		return err
	})
}

// mayCrashLoop reports whether d may have ended a process.
func (c *Consumer) mayCrashLoop(d *delivery) bool {
	if n := d.attempt(); n > 0 {
		return n > 1
	}
	return time.Now().Before(c.uncleanStartUntil)
}

// persist repeats write until it succeeds or ctx ends.
func (c *Consumer) persist(ctx context.Context, what string, write func() error) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := write()
		if err == nil {
			c.metrics.failing(0)
			return nil
		}
		c.waitOut(ctx, what, err, failures)
	}
	return ctx.Err()
}

// waitOut is the pause after so many failures in a row.
func (c *Consumer) waitOut(ctx context.Context, what string, err error, failures int) {
	if ctx.Err() != nil {
		return
	}
	c.metrics.failing(failures)
	pause := outageRetry.Delay(failures)
	c.log.WarnContext(ctx, "database does not serve the inbox, holding what is in hand",
		"doing", what, "error", err, "failures", failures, "in_hand", c.budget.inHand().messages, "retry_in_ms", pause.Milliseconds())
	c.heartbeat()
	backoff.Sleep(ctx, pause, nil)
}
