package inbox

import (
	"context"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// ackTimeout bounds the wait for the broker's word on an ack.
const ackTimeout = 10 * time.Second

// giveBackRetry is the pause before a message is given back while the consumer
// runs, by the broker's count of its deliveries: a subscription without a retry
// policy would bring it again at once.
var giveBackRetry = eventing.Backoff{Base: 2 * time.Second, Cap: time.Minute}

// settle acknowledges what a committed transaction has dealt with, and holds the
// aggregates that have a gap.
func (c *Consumer) settle(ctx context.Context, batch []*delivery, outcomes map[uuid.UUID]Outcome, began time.Time) {
	var moved []string
	debug := c.log.Enabled(ctx, slog.LevelDebug)
	for _, d := range batch {
		o := outcomes[d.id()]
		record(ctx, c.store.consumer, d, o, began)
		if debug {
			c.log.DebugContext(ctx, "event handled", append(d.logAttrs(), "outcome", o.String())...)
		}
		switch {
		case o.needsOwner():
			c.repair(ctx, d, o)
			continue
		case o == Lost:
			c.log.ErrorContext(ctx, "event acknowledged without effect: its owner has lost it", d.logAttrs()...)
		case o == Applied && (len(moved) == 0 || moved[len(moved)-1] != d.key()):
			moved = append(moved, d.key())
		}
		// The effect is committed, by this delivery or an earlier one.
		c.ack(ctx, d)
	}
	c.metrics.handled(ctx, batch, outcomes)
	if len(moved) > 0 {
		c.handler.Committed(moved...)
	}
}

// ack tells the broker that d needs nothing more. Where the subscription is
// exactly-once, its answer is looked at later; elsewhere there is none.
func (c *Consumer) ack(ctx context.Context, d *delivery) {
	d.settled = true
	c.inHand.Add(-int64(len(d.messages)))
	for _, m := range d.messages {
		r := m.AckWithResult()
		select {
		case <-r.Ready():
			c.acked(ctx, r)
		default:
			select {
			case c.acks <- r:
			default: // as many as can be outstanding wait already
			}
		}
	}
}

// heed looks at what the broker says of acks, until ctx ends.
func (c *Consumer) heed(ctx context.Context) {
	for {
		select {
		case r := <-c.acks:
			c.acked(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// acked counts an ack that the broker refused: the lease was lost. The message
// comes again, and is then a duplicate.
func (c *Consumer) acked(ctx context.Context, r *pubsub.AckResult) {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	if status, err := r.Get(ctx); err != nil && ctx.Err() == nil {
		c.metrics.ackFailed(ctx)
		c.log.WarnContext(ctx, "ack refused: the message will come again, as a duplicate", "error", err, "status", int(status))
	}
}

// giveBack lets the broker deliver all again. Nobody has died over these, so a
// beginning that was written down is taken back first.
func (c *Consumer) giveBack(ctx context.Context, all ...*delivery) {
	var begun []*delivery
	for _, d := range all {
		if d.begun > 0 && !d.settled {
			begun = append(begun, d)
		}
	}
	if len(begun) > 0 {
		if err := c.store.unbegin(context.WithoutCancel(ctx), begun); err != nil {
			c.log.WarnContext(ctx, "beginnings not taken back", "error", err, "events", len(begun))
		}
	}
	for _, d := range all {
		if d.settled {
			continue
		}
		d.settled = true
		c.inHand.Add(-int64(len(d.messages)))
		for _, m := range d.messages {
			c.metrics.nacked(ctx)
			m.Nack()
		}
	}
}

// leave gives back what is left when the work ends.
func (c *Consumer) leave(ctx context.Context, unsettled []*delivery) {
	c.giveBack(ctx, unsettled...)
	if err := c.store.leave(context.WithoutCancel(ctx)); err != nil {
		c.log.WarnContext(ctx, "clean end not written down, the next start will be wary", "error", err)
	}
}
