// Package hook calls the functions by which the user of a relay or a consumer observes
// errors and discards.
//
// One goroutine makes the calls of one relay or consumer, one at a time, in the order of their
// causes, outside of locks and transactions. So a call that blocks delays the calls behind it, but
// no event. Up to 1,000 calls wait. If 1,000 calls wait already, a further call is dropped, with a
// warning in the log, and is counted in hook.dropped_calls. The metrics count the error or discard
// even if its call is dropped. A panic of a hook is recovered and logged.
//
// A call is made at most once, because a process that dies loses the calls that wait. At the end of
// Run there is a short time for the calls that still wait. The documentation of the relay or the
// consumer states this time. After that the context of the running call ends, and the remaining
// calls are dropped.
package hook

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// maxWaiting is the most calls that wait. It bounds their memory: a call takes about 2 KB, because it
// does not keep the payload of its event. Even in a bad hour there are many times fewer calls in a second
// than maxWaiting.
const maxWaiting = 1000

// Calls queues the calls to the hooks of one relay or consumer, and makes them.
type Calls struct {
	log     *slog.Logger
	waiting chan call
	dropped metric.Int64Counter
	calling atomic.Bool // a hook is running
}

// call is a call of a hook. name is the hook's name in logs and metrics.
type call struct {
	name string
	do   func(context.Context)
}

// New returns the calls of the named hooks. Start begins to make them.
func New(log *slog.Logger, hooks ...string) *Calls {
	dropped := instrument.For("example.com/lockstep/pkg/eventing/hook").Counter("hook.dropped_calls", "{call}",
		"Calls of a user's function that were not made: it is too slow, or had not returned when the process ended")
	for _, name := range hooks {
		instrument.Begin(dropped, named(name))
	}
	return &Calls{log: log, waiting: make(chan call, maxWaiting), dropped: dropped}
}

func named(hook string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("hook", hook)))
}

// Add adds a call. It never waits.
func (c *Calls) Add(ctx context.Context, name string, do func(context.Context)) {
	select {
	case c.waiting <- call{name, do}:
	default:
		c.dropped.Add(ctx, 1, named(name))
		c.log.WarnContext(ctx, "a hook is too slow, a call of it is dropped", "hook", name, "waiting", maxWaiting)
	}
}

// Start makes the calls until stop is called. stop returns when each call has returned, or when the
// context until ends. The context of each call has the values of ctx, but does not end with ctx.
func (c *Calls) Start(ctx context.Context) (stop func(until context.Context)) {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	last, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		c.run(calling, last)
	}()
	return func(until context.Context) {
		defer cancel()
		close(last)
		select {
		case <-ended:
		case <-until.Done():
			cancel()
			if n := c.drop(until); n > 0 || c.calling.Load() {
				c.log.WarnContext(until, "a hook has not returned in time, its further calls are dropped", "dropped", n)
			}
		}
	}
}

// drop drops the calls that wait, and returns their number.
func (c *Calls) drop(ctx context.Context) (n int) {
	for {
		select {
		case next := <-c.waiting:
			c.dropped.Add(ctx, 1, named(next.name))
			n++
		default:
			return n
		}
	}
}

// run makes the calls. After last is closed, it makes the calls that still wait, and ends.
func (c *Calls) run(ctx context.Context, last <-chan struct{}) {
	for ctx.Err() == nil {
		select {
		case next := <-c.waiting:
			c.invoke(ctx, next)
		case <-last:
			if len(c.waiting) == 0 {
				return
			}
		}
	}
}

func (c *Calls) invoke(ctx context.Context, next call) {
	c.calling.Store(true)
	defer c.calling.Store(false)
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(ctx, "hook panicked", "hook", next.name, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	next.do(ctx)
}
