package outbox

import (
	"context"
	"log/slog"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// outcome is the result of a landing, for Settle.
func (r *Relay) settlement(ctx context.Context, l publishResult) queue.Settlement {
	o := queue.Settlement{Batch: l.batch.events, Published: l.report.published}
	switch {
	case l.report.err == nil || l.report.published == len(l.batch.events):
	case l.report.rejected:
		o.Failure = r.reject(ctx, l.batch.events[o.Published], l.report.err)
	case ctx.Err() == nil: // else it was the shutdown that cut it off
		o.Failure = &queue.Failure{Reason: l.report.err.Error(), RetryIn: l.report.wait}
	}
	return o
}

func (r *Relay) reject(ctx context.Context, e queue.Event, reason error) *queue.Failure {
	attempt := e.Rejections + 1
	park := attempt >= maxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if c := r.circuits[e.AggregateType]; park && c != nil {
		c.forget(e.Key())
	}
	r.log.Log(ctx, level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Failure{Reason: reason.Error(), RetryIn: rejectionPause.Delay(attempt), Rejected: true, Park: park}
}
