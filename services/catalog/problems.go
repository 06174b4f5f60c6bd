package catalog

import (
	"errors"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// The client's pauses: an owner that was restarted is back after
// consistency.FetchTimeout and a refusal; waiting readers leave sooner than that.
const awayRetryAfter, busyRetryAfter = 2 * time.Second, time.Second

// problemOf is err as the problem that the reader gets. Errors that say nothing to a
// reader stay as they are; problem.From classifies them.
func problemOf(err error) error {
	if invalid, ok := errors.AsType[*consistency.InvalidRequestError](err); ok {
		return problem.Invalid(invalid.Field, invalid.Detail)
	}
	switch {
	case errors.Is(err, consistency.ErrAhead):
		return problem.New(problem.CodeAhead, "TOKEN_AHEAD", "The consistency token is newer than anything that the owner has.")
	case errors.Is(err, consistency.ErrTooManyWaiters):
		return &problem.Error{
			Code: problem.CodeTooMany, Reason: "TOO_MANY_WAITERS", RetryAfter: busyRetryAfter,
			Detail: "Too many readers are waiting for fresh data.",
		}
	case errors.Is(err, errTooManySearches):
		return &problem.Error{
			Code: problem.CodeTooMany, Reason: "TOO_MANY_SEARCHES", RetryAfter: busyRetryAfter,
			Detail: "Too many searches are under way.",
		}
	case errors.Is(err, consistency.ErrOwnerUnavailable):
		return &problem.Error{
			Code: problem.CodeUnavailable, Reason: "NOT_FRESH_ENOUGH", RetryAfter: awayRetryAfter, Cause: err,
			Detail: "The read model has not reached what is demanded, and the owner cannot be asked.",
		}
	}
	return err
}
