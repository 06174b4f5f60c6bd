package outbox

import (
	"context"
	"log/slog"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publishResult is a batch that has been sent, with the result of publishing it.
type publishResult struct {
	batch  *leasedBatch
	report report
}

// settlement turns a result into the settlement that is written into the table.
func (r *Relay) settlement(ctx context.Context, p publishResult) queue.Settlement {
	o := queue.Settlement{Batch: p.batch.events, Published: p.report.published}
	switch {
	case p.report.err == nil || p.report.published == len(p.batch.events):
	case p.report.refused:
		o.Failure = r.refuse(ctx, p.batch.events[o.Published], p.report.err)
	case ctx.Err() == nil: // otherwise the shutdown may have caused the error
		o.Failure = &queue.Failure{Reason: p.report.err.Error(), RetryIn: p.report.wait}
	}
	return o
}

// refuse returns the failure of a refused event. The event is retried, or parked if this was its
// last attempt.
func (r *Relay) refuse(ctx context.Context, e queue.Event, reason error) *queue.Failure {
	attempt := e.Refusals + 1
	park := attempt >= r.options.MaxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if p := r.pauses[e.AggregateType]; park && p != nil {
		p.forget(e.Key())
	}
	r.log.Log(e.InTrace(ctx), level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Failure{Reason: reason.Error(), RetryIn: r.options.RefusalBackoff.Delay(attempt), Refused: true, Park: park}
}
