package inbox

import (
	"context"

	"example.com/lockstep/pkg/eventing/backoff"
)

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

// waitOut logs an outage and pauses. failures is how many writes or batches have failed in a row.
func (c *Consumer) waitOut(ctx context.Context, what string, err error, failures int) {
	if ctx.Err() != nil {
		return
	}
	c.metrics.failing(failures)
	pause := c.options.OutageBackoff.Delay(failures)
	c.log.WarnContext(ctx, "database does not serve the inbox, holding what is in hand",
		"doing", what, "error", err, "failures", failures, "in_hand", c.budget.inHand().messages, "retry_in_ms", pause.Milliseconds())
	c.heartbeat()
	backoff.Sleep(ctx, pause, nil)
}
