package inbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

// pendingAck is an ack that the broker may not have answered yet.
type pendingAck struct {
	result  *pubsub.AckResult
	event   eventing.Event
	message string    // the id of the message
	until   time.Time // when the answer is no longer waited for
}

// ackTimeout bounds the wait for the broker's answer to an ack. The time begins with the ack, and not when
// watchAcks comes to it. So many acks without an answer take no longer than one.
const ackTimeout = 10 * time.Second

// afterCommit acknowledges the events of a committed transaction, and blocks the aggregates that
// have a gap or have diverged. A duplicate may have been in an earlier transaction that failed.
// That transaction may have been committed all the same, without notifying the waiting readers. So
// the aggregate of such a duplicate also counts as moved.
func (c *Consumer) afterCommit(ctx context.Context, batch []*delivery, outcomes map[uuid.UUID]Outcome, tried *attempt) {
	c.metrics.handled(ctx, batch, outcomes)
	var moved []consistency.Position
	debug := c.log.Enabled(ctx, slog.LevelDebug)
	for _, d := range batch {
		o := outcomes[d.id()]
		tried.handled(d, o)
		if debug {
			c.logFor(d).DebugContext(d.in(ctx), "event handled", "outcome", o.String())
		}
		switch {
		case o.needsOwner():
			c.repair(ctx, d, o)
			continue
		case o == Lost:
			c.logFor(d).ErrorContext(d.in(ctx), "event acknowledged without effect: its owner has lost it")
		case o == Applied:
			moved = moveTo(moved, consistency.PositionOf(d.event()))
		case d.tried && o == 0:
			moved = moveTo(moved, consistency.PositionOf(d.event()).Unknown())
		}
		// The effect is committed, by this delivery or an earlier one.
		c.ack(ctx, d)
	}
	c.succeeded(len(batch))
	if len(moved) > 0 {
		c.notify(tried.transaction(ctx), moved...)
	}
}

// foundDone acknowledges d, whose inbox row says that d is done. Another instance has applied d, or
// an earlier transaction with d was committed although it failed here: see afterCommit.
func (c *Consumer) foundDone(ctx context.Context, d *delivery) {
	c.ack(ctx, d)
	if d.tried {
		c.notify(ctx, consistency.PositionOf(d.event()).Unknown())
	}
}

// notify calls the handler's Committed. The commit stands, so that a panic of Committed is only logged.
func (c *Consumer) notify(ctx context.Context, moved ...consistency.Position) {
	err := c.handler.committed(ctx, moved...)
	if p, ok := errors.AsType[*panicError](err); ok {
		c.log.ErrorContext(ctx, "handler panicked after a commit", "panic", p.value, "stack", string(p.stack))
	}
}

// moveTo adds the position at to the list moved. If the last position in the list is of the same
// aggregate, at replaces it. The caller adds positions in the order of aggregate and version.
func moveTo(moved []consistency.Position, at consistency.Position) []consistency.Position {
	if n := len(moved); n > 0 && moved[n-1].AggregateID == at.AggregateID && moved[n-1].AggregateType == at.AggregateType {
		moved[n-1] = at
		return moved
	}
	return append(moved, at)
}

// ack tells the broker that d needs nothing more. The caller may call ack again for messages that
// have joined d since the first call. If the subscription is exactly-once, watchAcks reads the
// broker's answer later. Otherwise the broker does not answer.
func (c *Consumer) ack(ctx context.Context, d *delivery) {
	d.finished = true
	for _, m := range d.takeUnanswered() {
		ack := pendingAck{result: m.AckWithResult(), event: d.event(), message: m.ID, until: time.Now().Add(ackTimeout)}
		ack.event.Payload = nil // it would stay in memory
		c.budget.release(loadOf(m))
		select {
		case <-ack.result.Ready():
			c.checkAck(ctx, ack)
		default:
			select {
			case c.acks <- ack:
			default: // full: the answer to this ack is not read
			}
		}
	}
}

// watchAcks reads the broker's answers to acks, until ctx ends.
func (c *Consumer) watchAcks(ctx context.Context) {
	for {
		select {
		case ack := <-c.acks:
			c.checkAck(ctx, ack)
		case <-ctx.Done():
			return
		}
	}
}

// checkAck counts an ack that the broker refused because the lease was lost. The message comes
// again, and is then a duplicate. An ack without an answer is not counted. If the stream of its message
// has ended with an error that the client does not retry, the client has not sent the ack, and the message
// comes again, too.
func (c *Consumer) checkAck(ctx context.Context, ack pendingAck) {
	ctx, cancel := context.WithDeadline(ctx, ack.until)
	defer cancel()
	status, err := ack.result.Get(ctx) // an answer that has come counts even if ctx has ended
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return
	}
	c.metrics.ackFailed(ctx)
	c.logOf(ack.event, ack.message).WarnContext(ack.event.InTrace(ctx), "ack refused: the message will come again, as a duplicate",
		"error", err, "status", int(status))
}

// giveBack nacks the messages of all deliveries that are not finished, so that the broker delivers them
// again. First it takes back the recorded starts of these deliveries, because they have not ended the
// process. If ctx ends meanwhile, the starts stay, and the messages are nacked all the same. A message that
// has joined a finished delivery is acked.
func (c *Consumer) giveBack(ctx context.Context, all ...*delivery) {
	var started []*delivery
	for _, d := range all {
		if d.starts > 0 && !d.finished {
			started = append(started, d)
		}
	}
	if len(started) > 0 {
		rows, err := c.store.unmarkStarted(ctx, started)
		if left := int64(len(started)) - rows; left > 0 {
			c.log.WarnContext(ctx, "starts not taken back", "error", err, "events", left)
		}
	}
	for _, d := range all {
		if d.finished {
			c.ack(ctx, d)
			continue
		}
		d.finished = true
		for _, m := range d.takeUnanswered() {
			c.nack(ctx, m)
			c.budget.release(loadOf(m))
		}
	}
}

func (c *Consumer) nack(ctx context.Context, m *pubsub.Message) {
	c.metrics.nacked(ctx)
	m.Nack()
}

// shutDown gives the remaining messages back when the work ends, and writes that this instance has
// ended well. If ctx ends meanwhile, the starts of these messages stay, and the end counts as unclean.
func (c *Consumer) shutDown(ctx context.Context, unfinished []*delivery) {
	c.giveBack(ctx, unfinished...)
	if err := c.store.deregister(ctx); err != nil {
		c.log.WarnContext(ctx, "clean end not written down, the next start counts as unclean", "error", err)
	}
}

// after returns a context that ends when the duration limit has passed since the end of ctx, or when cancel
// is called.
func after(ctx context.Context, limit time.Duration) (later context.Context, cancel context.CancelFunc) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		backoff.Sleep(later, limit, nil)
		end()
	})
	return later, func() { stop(); end() }
}
