package catalog

import (
	"errors"
	"time"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// awayRetryAfter and busyRetryAfter are durations, for which a client is asked to wait before it tries again.
// awayRetryAfter is for an owner that cannot be asked. A restarted owner is back after two failed calls: one
// ends with consistency.FetchTimeout, one is refused. busyRetryAfter is for too many readers or searches.
// It is shorter, because some of them end sooner.
const awayRetryAfter, busyRetryAfter = 2 * time.Second, time.Second

// notTakenRetryAfter is a duration, for which a client is asked to wait if the database refuses the owner's
// row (consistency.ErrNotTaken). It is long, because a person has to act.
const notTakenRetryAfter = 30 * time.Second

// refuseFullyConsistent adds a violation to found if required is fully consistent. Only a read of one row can
// be fully consistent, so the lists call refuseFullyConsistent.
func refuseFullyConsistent(required consistency.Requirement, found *problem.Violations) {
	if invalid, ok := errors.AsType[*consistency.InvalidRequestError](required.RejectFullyConsistent()); ok {
		found.Require(false, invalid.Field, invalid.Detail)
	}
}

// problemOf returns err as the problem that the reader gets. An error that says nothing to a reader
// stays as it is, and problem.From classifies it.
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
	case errors.Is(err, consistency.ErrNotTaken):
		return &problem.Error{
			Code: problem.CodeUnavailable, Reason: "NOT_FRESH_ENOUGH", RetryAfter: notTakenRetryAfter, Cause: err,
			Detail: "The read model has not reached what is demanded, and cannot take it from the owner.",
		}
	}
	return err
}
