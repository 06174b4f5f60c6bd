package inbox

import (
	"context"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

const (
	// maxBegun is how often an event may be begun without an end before it is
	// taken for what ends the process.
	maxBegun = 3
	// wariness is how long a start after an unclean end looks at everything
	// twice: the leases of the one before have ended by then.
	wariness = 2 * time.Minute
)

// enter writes down that this consumer runs, which it takes back when it ends
// well. Where another has not, the next deliveries are suspect: one of them may
// be what ended it. A neighbour that is alive looks the same, and costs the
// commit per batch for a while.
func (c *Consumer) enter(ctx context.Context) {
	_ = c.persist(ctx, "enter", func() error {
		others, err := c.store.enter(ctx)
		if err == nil && others {
			c.wary = time.Now().Add(wariness)
		}
		return err
	})
}

// process applies batch, with care for events that may end the process. Counting
// every beginning would cost a commit per batch, so it is done for suspects
// only: those that the broker delivers again, or whose deliveries it does not
// count and that arrive after an unclean end. The first time they are written
// down together and applied together. Those of which the row then says that they
// have been begun before are counted and applied one at a time: the count of an
// innocent one stops at the batch that it shared with a killer.
func (c *Consumer) process(ctx context.Context, batch []*delivery) (unsettled []*delivery) {
	if err := c.begin(ctx, batch); err != nil {
		return batch
	}
	lone := map[string]bool{}
	for _, d := range batch {
		if d.before {
			lone[d.key()] = true
		}
	}
	if len(lone) == 0 {
		return c.apply(ctx, batch)
	}
	var together, alone []*delivery
	for _, d := range batch {
		if lone[d.key()] {
			alone = append(alone, d)
		} else {
			together = append(together, d)
		}
	}
	unsettled = c.apply(ctx, together)
	for _, d := range alone {
		if err := c.beginAgain(ctx, d); err != nil {
			unsettled = append(unsettled, d)
			continue
		}
		unsettled = append(unsettled, c.apply(ctx, []*delivery{d})...)
	}
	return unsettled
}

// begin writes ahead that the suspects of batch are begun for the first time,
// and marks those of which that is not true. Its error is that of ctx.
func (c *Consumer) begin(ctx context.Context, batch []*delivery) error {
	var suspects []*delivery
	for _, d := range batch {
		if d.begun == 0 && d.invalid == nil && !d.settled && c.suspicious(d) {
			suspects = append(suspects, d)
		}
	}
	if len(suspects) == 0 {
		return ctx.Err()
	}
	return c.persist(ctx, "begin", func() error {
		first, before, err := c.store.begin(ctx, suspects)
		if err != nil {
			return err
		}
		for _, d := range suspects {
			if first[d] {
				d.begun = 1
			}
			d.before = before[d]
		}
		return nil
	})
}

// beginAgain writes ahead that d, which is alone, is begun once more. When that
// was too often, d belongs into the dead letters. Its error is that of ctx.
func (c *Consumer) beginAgain(ctx context.Context, d *delivery) error {
	if !d.before || d.begun > 0 || d.invalid != nil {
		return ctx.Err()
	}
	return c.persist(ctx, "begin", func() (err error) {
		if d.begun, err = c.store.beginAgain(ctx, d); d.begun > maxBegun {
			d.invalid = fmt.Errorf("the process ended %d times while applying it", d.begun-1)
		}
		return err
	})
}

func (c *Consumer) suspicious(d *delivery) bool {
	if n := d.attempt(); n > 0 {
		return n > 1
	}
	return time.Now().Before(c.wary)
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

// waitOut is the pause after the latest of some failures in a row.
func (c *Consumer) waitOut(ctx context.Context, what string, err error, failures int) {
	if ctx.Err() != nil {
		return
	}
	c.metrics.failing(failures)
	pause := outageRetry.Delay(failures)
	c.log.WarnContext(ctx, "database does not serve the inbox, holding what is in hand",
		"doing", what, "error", err, "failures", failures, "in_hand", c.budget.inHand().messages, "retry_in_ms", pause.Milliseconds())
	c.beat()
	backoff.Sleep(ctx, pause, nil)
}
