package fresh

import (
	"context"
	"errors"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/circuit"
	"example.com/lockstep/pkg/eventing/consistency"
)

const (
	// AskTimeout is short: the reader has waited before, and a draining server
	// gives it 4 s.
	AskTimeout = 3 * time.Second
	// asksAtOnce bounds the concurrent calls to the owner on behalf of readers.
	asksAtOnce = 64
	// The client's pauses: an owner that was restarted is back after AskTimeout and a
	// refusal; waiting readers leave sooner than that.
	awayRetryAfter, busyRetryAfter = 2 * time.Second, time.Second
)

// ErrOwnerAway is wrapped by the error of a call to the owner without an answer, or
// without a valid one.
var ErrOwnerAway = errors.New("owner cannot be asked")

// ErrAhead is the error of a demand for a version that the owner does not have.
var ErrAhead error = problem.New(problem.CodeAhead, "TOKEN_AHEAD", "The consistency token is newer than anything that the owner has.")

// Standing is the result of reading the copy, compared with a demand.
type Standing int

// The results of a read of the copy.
const (
	Nothing Standing = iota // to show, not even stale data
	Behind                  // something older than demanded
	Met                     // the demanded version, or something newer
)

// Reader answers the reads of one copy.
type Reader struct {
	waiters *consistency.Waiters
	circuit *circuit.Circuit
	metrics metrics
}

// NewReader returns a reader of the copy that waiters wait for.
func NewReader(waiters *consistency.Waiters) *Reader {
	return &Reader{waiters: waiters, circuit: circuit.New(asksAtOnce, AskTimeout), metrics: newMetrics()}
}

// Satisfy calls look to read the copy until it meets d. If that does not happen within
// d's wait, it calls ask, which asks the owner. look and ask keep the data that they
// have read. The outcome is Stale if d allows stale data and the last look found only
// older data; the caller then shows that.
func (r *Reader) Satisfy(ctx context.Context, d Demand, look func(context.Context) (Standing, error), ask func(context.Context) error,
) (outcome consistency.Outcome, err error) {
	if len(d.wanted) > 0 || d.FullyConsistent() {
		defer func() { r.waiters.Count(ctx, outcome) }()
	}
	outcome, stand, err := r.try(ctx, d, look, ask)
	p, ok := errors.AsType[*problem.Error](err)
	switch {
	case !ok || !d.staleIfError || stand != Behind:
		return outcome, err
	case p.Code == problem.CodeTooMany:
		return consistency.Stale, nil
	case p.Code == problem.CodeUnavailable:
		// Read again: the first read may be seconds old, and the copy may have caught
		// up.
		if stand, err = look(ctx); err != nil {
			return consistency.Failed, err
		}
		if stand == Met && !d.FullyConsistent() {
			return consistency.Waited, nil
		}
		return consistency.Stale, nil
	}
	return outcome, err
}

// try also returns the result of the last look.
func (r *Reader) try(ctx context.Context, d Demand, look func(context.Context) (Standing, error), ask func(context.Context) error,
) (consistency.Outcome, Standing, error) {
	stand, err := Nothing, error(nil)
	if !d.FullyConsistent() || d.staleIfError {
		// A look before the wait: most readers need no wait, and are served even when
		// no more readers may wait.
		stand, err = look(ctx)
	}
	switch {
	case err != nil:
		return consistency.Failed, stand, err
	case d.FullyConsistent():
		stand = min(stand, Behind) // the copy's own data never meets such a demand
	case stand == Met:
		return consistency.Fresh, stand, nil
	case d.mode == consistency.MinimizeLatency:
		return consistency.Stale, stand, nil
	case d.wait > 0:
		reached, err := r.wait(ctx, d)
		if err != nil {
			return consistency.Failed, stand, err
		}
		if !reached {
			break // when thousands of waits end at once, another look would overload the database
		}
		if stand, err = look(ctx); err != nil {
			return consistency.Failed, stand, err
		}
		if stand == Met {
			return consistency.Waited, stand, nil
		}
	}
	if err := r.ask(ctx, ask); err != nil {
		return consistency.Failed, stand, err
	}
	return consistency.Authority, stand, nil
}

// wait returns when the copy meets d, or when the wait is over; reached tells which.
func (r *Reader) wait(ctx context.Context, d Demand) (reached bool, err error) {
	waiting, stop := context.WithTimeout(ctx, d.budget(ctx))
	defer stop()
	reached, err = r.waiters.Wait(waiting, d.wanted...)
	if errors.Is(err, consistency.ErrTooManyWaiters) {
		return false, &problem.Error{
			Code: problem.CodeTooMany, Reason: "TOO_MANY_WAITERS", RetryAfter: busyRetryAfter,
			Detail: "Too many readers are waiting for fresh data.",
		}
	}
	return reached, ctx.Err()
}

// budget is the wait within ctx's deadline. Half of the deadline is kept for asking the
// owner: a wait that used up all of it would be useless.
func (d Demand) budget(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(d.wait, time.Until(deadline)/2)
	}
	return d.wait
}

// ask runs question, a call to the owner, behind a circuit: a slow owner must not delay
// the readers that do not need it. It leaves a tenth of ctx's deadline, in which the
// reader can be told that no answer came.
func (r *Reader) ask(ctx context.Context, question func(context.Context) error) error {
	asking := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		asking, stop = context.WithTimeout(ctx, time.Until(deadline)*9/10)
		defer stop()
	}
	away := func(err error) bool { return errors.Is(err, ErrOwnerAway) }
	err := r.circuit.Do(asking, question, away)
	// If a call ran out of time, the copy may have been the slow part.
	late := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	r.metrics.asked(ctx, answerOf(err, away(err) || late))
	if away(err) || late || errors.Is(err, circuit.ErrOpen) {
		return &problem.Error{
			Code: problem.CodeUnavailable, Reason: "NOT_FRESH_ENOUGH", RetryAfter: awayRetryAfter, Cause: err,
			Detail: "The read model has not reached what is demanded, and the owner cannot be asked.",
		}
	}
	return err
}
