package outbox

import (
	"context"
	"log/slog"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// outcome is the result of a landing, for Settle.
func (r *Relay) outcome(ctx context.Context, l landing) queue.Outcome {
	o := queue.Outcome{Run: l.hold.run, Published: l.report.published}
	switch {
	case l.report.err == nil || l.report.published == len(l.hold.run):
	case l.report.rejected:
		o.Fault = r.reject(ctx, l.hold.run[o.Published], l.report.err)
	case ctx.Err() == nil: // else it was the shutdown that cut it off
		o.Fault = &queue.Fault{Reason: l.report.err.Error(), RetryIn: l.report.wait}
	}
	return o
}

func (r *Relay) reject(ctx context.Context, e queue.Event, reason error) *queue.Fault {
	attempt := e.Attempts + 1
	park := attempt >= maxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if c := r.circuits[e.AggregateType]; park && c != nil {
		c.parked(e.Key())
	}
	r.log.Log(ctx, level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Fault{Reason: reason.Error(), RetryIn: refused.Delay(attempt), Rejected: true, Park: park}
}
