package consistency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.com/lockstep/pkg/eventing/txn"
)

const (
	// FetchTimeout bounds a reader's call to the owner. It is short, because the reader has already
	// waited for the projection, and a draining server gives a reader 3.5 s.
	FetchTimeout = 3 * time.Second
	// readTime is a duration. A reader reads the projection after its wait only if at least readTime is
	// left of the time for the wait. Almost all reads are shorter.
	readTime = 10 * time.Millisecond
	// fetchesAtOnce bounds the concurrent calls to the owner on behalf of readers.
	fetchesAtOnce = 64
)

var (
	// ErrOwnerUnavailable is wrapped by the error of a call to the owner that got no answer, or no
	// valid answer.
	ErrOwnerUnavailable = errors.New("owner cannot be asked")
	// ErrNotTaken means that the projection's database has refused the owner's state. It is wrapped by the
	// error of a read that has to write the owner's state to the projection first, because its answer has
	// more than that state, as a list has.
	ErrNotTaken = errors.New("the projection cannot take the owner's state")
	// ErrAhead is the error of a requirement for a version that the owner does not have.
	ErrAhead = errors.New("the consistency token is ahead of the owner")
	// ErrBusy is wrapped by the error of a read that was not begun, because too many reads of its
	// kind are under way. A reader that allows stale data gets stale data at once.
	ErrBusy = errors.New("too many reads are under way")
)

// Freshness is the result of reading the projection, compared with a requirement.
type Freshness int

// The results of a read of the projection.
const (
	Absent  Freshness = iota // the projection has nothing to show, not even stale data
	Behind                   // the projection has something older than required
	Reached                  // the projection has the required version, or something newer
)

// Query is one read of a projection. It keeps the data that it has read last.
type Query interface {
	// ReadProjection reads the projection, and compares it with the requirement.
	ReadProjection(ctx context.Context) (Freshness, error)
	// FetchFromOwner reads the owner's state. It returns ErrAhead if the owner's state does not
	// meet the requirement, ErrOwnerUnavailable if the owner does not answer, and ErrNotTaken if the
	// projection has to take the state and cannot.
	FetchFromOwner(ctx context.Context) error
}

// Reader serves reads of projections. All of these projections have the same service as their
// owner.
type Reader struct {
	waiters *Waiters
	circuit *circuit
}

// NewReader returns a reader of the projections that waiters wait for.
func NewReader(waiters *Waiters) *Reader {
	return &Reader{waiters: waiters, circuit: newCircuit(fetchesAtOnce, FetchTimeout)}
}

// Read calls q.ReadProjection. If the projection is behind, Read waits, and calls q.ReadProjection again
// once the projection has reached required's positions. If it does not reach them within required's wait,
// Read calls q.FetchFromOwner. If it reaches them, but the second q.ReadProjection does not see their rows,
// Read calls q.FetchFromOwner at the end of required's wait. The outcome is Stale if no fresh data could be
// had, required allows stale data, and the last read of the projection found older data. The caller then
// shows the older data. Besides the errors of q, Read returns ErrTooManyWaiters, ErrOwnerUnavailable, and
// the error of ctx.
func (r *Reader) Read(ctx context.Context, required Requirement, q Query) (outcome Outcome, err error) {
	if required.isDemand() {
		defer func() {
			if !errors.Is(ctx.Err(), context.Canceled) { // a caller that hangs up is no failed read
				r.waiters.Count(ctx, outcome)
			}
		}()
	}
	outcome, found, err := r.read(ctx, required, q)
	if err != nil && required.staleIfError && found == Behind {
		return staleInstead(ctx, required, q, err)
	}
	return outcome, err
}

// isDemand reports whether the reader asks for fresh data. If so, the outcome counts for the
// objective of fresh reads. A reader with [MinimizeLatency] takes old data in any case.
func (r Requirement) isDemand() bool {
	return (len(r.positions) > 0 || r.FullyConsistent()) && r.mode != MinimizeLatency
}

// staleInstead returns the outcome of a read that failed with the error cause. The reader prefers
// stale data to an error.
func staleInstead(ctx context.Context, required Requirement, q Query, cause error) (Outcome, error) {
	switch {
	case errors.Is(cause, ErrBusy):
		return Stale, nil
	case !isPassing(cause):
		return Failed, cause
	}
	// Read again, because the first read may be seconds old, and the projection may have caught up
	// since.
	found, err := q.ReadProjection(ctx)
	switch {
	case err != nil:
		return Failed, err
	case found == Reached && !required.FullyConsistent():
		return Waited, nil
	}
	return Stale, nil
}

// isPassing reports whether cause is a state of the owner or of the projection, and no fault of the reader.
func isPassing(cause error) bool {
	return slices.ContainsFunc([]error{ErrOwnerUnavailable, ErrNotTaken, txn.ErrLocked, txn.ErrBusy},
		func(passing error) bool { return errors.Is(cause, passing) })
}

// read is Read without the fallback to stale data. It also returns the result of the last read of
// the projection.
func (r *Reader) read(ctx context.Context, required Requirement, q Query) (Outcome, Freshness, error) {
	if required.FullyConsistent() {
		return r.readOwner(ctx, required, q)
	}
	outcome, found, err := r.readProjection(ctx, required, q)
	if outcome != Authority {
		return outcome, found, err
	}
	return r.fetch(ctx, q, found)
}

// readProjection reads the projection, and once more after a wait if it is behind. The outcome is
// Authority if the owner must be asked.
func (r *Reader) readProjection(ctx context.Context, required Requirement, q Query) (Outcome, Freshness, error) {
	// The waiter is added before the read, so that it misses no commit between the read and the
	// wait. If there is no room for the waiter, the read is done all the same, because most reads
	// need no wait.
	early := r.addEarly(required)
	if early != nil {
		defer r.waiters.remove(early)
	}
	found, err := q.ReadProjection(ctx)
	switch {
	case err != nil:
		return Failed, found, err
	case found == Reached:
		return Fresh, found, nil
	case required.mode == MinimizeLatency:
		return Stale, found, nil
	}
	found, err = r.waitAndRead(ctx, required, q, early, found)
	if err := cmp.Or(err, ctx.Err()); err != nil {
		return Failed, found, err
	}
	if found == Reached {
		return Waited, found, nil
	}
	return Authority, found, nil
}

// addEarly adds a waiter before the read. It returns nil if there is no room for the waiter, or if
// required leaves nothing to wait for.
func (r *Reader) addEarly(required Requirement) *waiter {
	if required.wait <= 0 || required.mode == MinimizeLatency || len(required.positions) == 0 {
		return nil
	}
	early, err := r.waiters.addEarly(required.positions)
	if err != nil {
		return nil
	}
	return early
}

// readOwner does what read does, for a fully-consistent requirement. The projection never meets
// such a requirement. So readOwner reads the projection only if the reader allows stale data.
func (r *Reader) readOwner(ctx context.Context, required Requirement, q Query) (Outcome, Freshness, error) {
	found := Absent
	if required.staleIfError {
		var err error
		if found, err = q.ReadProjection(ctx); err != nil {
			return Failed, found, err
		}
	}
	return r.fetch(ctx, q, min(found, Behind))
}

// waitAndRead waits until the projection meets required, and reads it again. It returns the result
// of the second read, or found if there was none. early is the waiter that was added before the
// first read, or nil if there was no room for a waiter.
func (r *Reader) waitAndRead(ctx context.Context, required Requirement, q Query, early *waiter, found Freshness) (Freshness, error) {
	if required.wait <= 0 || len(required.positions) == 0 {
		return found, nil
	}
	waiter := early
	if waiter == nil {
		var err error
		if waiter, err = r.waiters.add(required.positions); err != nil {
			return found, err
		}
		defer r.waiters.remove(waiter)
	}
	// A position that was reached before the waiter was added may never move again. Only a read ends the wait
	// for it.
	if early == nil || len(required.positions) > 1 {
		r.waiters.readFor(waiter)
	}
	waiting, stop := context.WithTimeout(ctx, required.budget(ctx))
	defer stop()
	reached, err := r.waiters.await(waiting, waiter)
	if err != nil || !reached { // skip the read, because thousands at once would overload the database
		return found, err
	}
	// A read that would last beyond the end of the wait would tell that rows exist; see below.
	if end, _ := waiting.Deadline(); time.Until(end) >= readTime {
		if found, err = q.ReadProjection(ctx); err != nil || found == Reached {
			return found, err
		}
	}
	// The token may be forged, and the rows that have ended the wait may be another tenant's. An
	// earlier answer would tell the token's author that these rows exist.
	return found, r.waiters.waitOut(waiting, waiter)
}

// budget returns how long r may wait within ctx's deadline. A wait takes at most half of the time
// until the deadline. The other half is left for the call to the owner.
func (r Requirement) budget(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(r.wait, time.Until(deadline)/2)
	}
	return r.wait
}

// fetch calls q.FetchFromOwner behind a circuit breaker. The circuit breaker bounds the calls to
// the owner, so that a slow owner does not delay reads that need no such call. The call ends after
// nine tenths of the time until ctx's deadline. The last tenth is left to tell the reader that no
// answer came.
func (r *Reader) fetch(ctx context.Context, q Query, found Freshness) (Outcome, Freshness, error) {
	fetching := ctx
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		left := time.Until(deadline) // nine times as much could overflow
		fetching, stop = context.WithTimeout(ctx, left-left/10)
		defer stop()
	}
	err := r.circuit.do(fetching, q.FetchFromOwner, isUnavailable)
	// late says that the call ran out of time before ctx ended. That need not be the owner's fault,
	// because the call may also write to the projection.
	late := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
	m := r.waiters.metrics
	m.questions.Add(ctx, 1, m.result.Of(answerOf(err, isUnavailable(err) || late)))
	switch {
	case err == nil:
		return Authority, found, nil
	case !isUnavailable(err) && (late || errors.Is(err, errOpen)):
		err = fmt.Errorf("%w: %w", ErrOwnerUnavailable, err)
	}
	return Failed, found, err
}

func isUnavailable(err error) bool { return errors.Is(err, ErrOwnerUnavailable) }

// answerOf returns the attribute result of the metric for a call to the owner that ended with err.
// away says that the owner was unavailable, or that the call ran out of time.
func answerOf(err error, away bool) string {
	switch {
	case errors.Is(err, errOpen):
		return "refused"
	case away:
		return "away"
	}
	return "answered" // also if the error is the reader's own
}
