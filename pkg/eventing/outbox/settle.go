package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// landing is a hold whose publishing has ended.
type landing struct {
	hold   *hold
	report report
}

// settling writes back what lands, everything that landed meanwhile in one
// statement, until landings is closed. It also renews leases: the two never
// wait for each other's row locks.
func (r *Relay) settling(ctx context.Context, landings <-chan landing) {
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for {
		select {
		case first, ok := <-landings:
			if !ok {
				return
			}
			r.settle(ctx, r.gather(first, landings))
		case <-renew.C:
			r.renew(ctx)
		}
	}
}

// gatherTime is how long a landing waits for others at most.
const gatherTime = 2 * time.Millisecond

// gather adds to first what has landed too. While most of what the relay holds is
// still to land, it waits a moment: a statement costs the same for a few.
func (r *Relay) gather(first landing, landings <-chan landing) []landing {
	batch, events := []landing{first}, len(first.hold.run)
	timer := time.NewTimer(gatherTime)
	defer timer.Stop()
	for 2*events < r.flight.held() || len(landings) > 0 {
		select {
		case l, ok := <-landings:
			if !ok {
				return batch
			}
			batch, events = append(batch, l), events+len(l.hold.run)
		case <-timer.C:
			return batch
		}
	}
	return batch
}

// settle writes a batch back, trying again while its leases last. When it gives
// up, the rows stay leased until that runs out, and are then sent again.
func (r *Relay) settle(ctx context.Context, batch []landing) {
	// What the broker has acknowledged must be written down even when Run is
	// being cancelled.
	settling := context.WithoutCancel(ctx)
	outcomes, holds := make([]queue.Outcome, len(batch)), make([]*hold, len(batch))
	for i, l := range batch {
		outcomes[i], holds[i] = r.outcome(ctx, l), l.hold
	}
	defer r.flight.remove(holds)
	for attempt := 1; ; attempt++ {
		done, err := r.queue.Settle(settling, r.token, outcomes)
		if err == nil {
			r.metrics.settled(ctx, batch, done.Lost)
			r.agenda.settled(r.flight, outcomes, done.Followed)
			return
		}
		r.log.WarnContext(ctx, "relay cannot mark what it published", "error", err, "attempt", attempt)
		// The last write-back may take no longer than a shutdown allows.
		if ctx.Err() != nil || !holds[0].outlasts(0) {
			return
		}
		eventing.Sleep(ctx, outage.Delay(attempt), nil)
	}
}

// outcome is what is to be written of a landing.
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
	r.log.Log(ctx, level, "broker refused event", append(e.LogAttrs(), "attempt", attempt, "parked", park, "error", reason)...)
	return &queue.Fault{Reason: reason.Error(), RetryIn: refused.Delay(attempt), Rejected: true, Park: park}
}

// renew extends the leases that have lasted for a third of their time. One that
// is gone begins no further request.
func (r *Relay) renew(ctx context.Context) {
	due := r.flight.ageing()
	if len(due) == 0 {
		return
	}
	heads := make([]uuid.UUID, 0, len(due))
	for id := range due {
		heads = append(heads, id)
	}
	sent := time.Now()
	held, err := r.queue.Renew(context.WithoutCancel(ctx), r.token, heads)
	if err != nil {
		r.log.WarnContext(ctx, "leases not renewed", "error", err)
		return
	}
	for _, id := range held {
		due[id].extend(sent.Add(queue.LeaseTime))
		delete(due, id)
	}
	for _, h := range due {
		h.extend(sent)
	}
}
