package outbox

import (
	"context"
	"log/slog"

	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// publishResult is a batch whose publishing has ended, with the result.
type publishResult struct {
	batch  *leasedBatch
	report report
}

// send publishes a batch and gives the result to its topic's pause, if it has a topic. ctx
// and flying are those of publish.
func (r *Relay) send(ctx, flying context.Context, h *leasedBatch) report {
	p := r.pauses[h.events[0].AggregateType]
	rep := r.publisher.publish(ctx, flying, h, p)
	if p != nil {
		r.updatePause(ctx, flying, p, h, &rep)
	}
	return rep
}

// updatePause gives the result of a batch to its topic's pause. It turns a refusal that is the
// topic's fault into an outage.
func (r *Relay) updatePause(ctx, flying context.Context, p *topicPause, h *leasedBatch, rep *report) {
	key := h.events[0].Key()
	if rep.published > 0 && p.succeeded(key) {
		r.log.InfoContext(ctx, "relay goes on", "topic", p.topic)
		r.followUps.topicResumed()
	}
	paused := false
	switch {
	case rep.rejected:
		v := p.refusal(key, h.probe)
		rep.rejected, rep.wait, paused = v.onEvent, v.wait, v.paused
		if v.resumed {
			r.followUps.topicResumed()
		}
	case rep.err != nil && flying.Err() == nil:
		rep.wait, paused = p.failed(rep.err, h.probe)
	case rep.published == 0 && h.probe != 0:
		p.postpone(h.probe, 0)
	}
	if paused {
		cause, since := p.reason()
		failures := p.failures()
		r.log.WarnContext(ctx, "relay is held up, nothing is lost", "topic", p.topic, "cause", cause,
			"paused_since", since, "failures", failures, "error", rep.err)
		if !since.IsZero() { // it has not resumed meanwhile
			r.observePause(ctx, Pause{Topic: p.topic, Cause: cause, Since: since, Failures: failures, Err: rep.err})
		}
	}
	if p.paused() {
		signal(r.wakeProbes)
	}
}

// settlement turns a result into the settlement that is written back.
func (r *Relay) settlement(ctx context.Context, p publishResult) queue.Settlement {
	o := queue.Settlement{Batch: p.batch.events, Published: p.report.published}
	switch {
	case p.report.err == nil || p.report.published == len(p.batch.events):
	case p.report.rejected:
		o.Failure = r.reject(ctx, p.batch.events[o.Published], p.report.err)
	case ctx.Err() == nil: // otherwise the shutdown cut it off
		o.Failure = &queue.Failure{Reason: p.report.err.Error(), RetryIn: p.report.wait}
	}
	return o
}

// reject is the failure of a refused event: a retry, or at the last refusal parking.
func (r *Relay) reject(ctx context.Context, e queue.Event, reason error) *queue.Failure {
	attempt := e.Rejections + 1
	park := attempt >= r.options.MaxAttempts
	level := slog.LevelWarn
	if park {
		level = slog.LevelError
	}
	if p := r.pauses[e.AggregateType]; park && p != nil {
		p.forget(e.Key())
	}
	r.log.Log(e.InTrace(ctx), level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Failure{Reason: reason.Error(), RetryIn: r.options.RejectionBackoff.Delay(attempt), Rejected: true, Park: park}
}
