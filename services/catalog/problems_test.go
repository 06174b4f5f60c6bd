package catalog

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/txn"
)

// Each sentinel error of the library has its reason, and a time after which a retry may
// succeed where that is so.
func TestEachErrorOfTheLibraryIsAProblem(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		code   problem.Code
		reason string
		again  bool // has a Retry-After
	}{
		"ahead":             {consistency.ErrAhead, problem.CodeAhead, "TOKEN_AHEAD", false},
		"too many readers":  {consistency.ErrTooManyWaiters, problem.CodeTooMany, "TOO_MANY_WAITERS", true},
		"too many searches": {errTooManySearches, problem.CodeTooMany, "TOO_MANY_SEARCHES", true},
		"away":              {fmt.Errorf("%w: %w", consistency.ErrOwnerUnavailable, context.DeadlineExceeded), problem.CodeUnavailable, "NOT_FRESH_ENOUGH", true},
		"not taken":         {fmt.Errorf("%w: %w", consistency.ErrNotTaken, &pgconn.PgError{Code: "23514"}), problem.CodeUnavailable, "NOT_FRESH_ENOUGH", true},
		"locked":            {fmt.Errorf("take over: %w", txn.ErrLocked), problem.CodeUnavailable, "LOCKED", true},
		"busy":              {fmt.Errorf("take over: %w", txn.ErrBusy), problem.CodeUnavailable, "BUSY", true},
		"invalid":           {&consistency.InvalidRequestError{Field: "f", Detail: "is odd"}, problem.CodeInvalid, "", false},
	} {
		p := problem.From(problemOf(tc.err))
		if p.Code != tc.code || p.Reason != tc.reason || p.RetryAfter > 0 != tc.again {
			t.Errorf("%s: %+v", name, p)
		}
		if tc.code == problem.CodeUnavailable && !errors.Is(p, tc.err) {
			t.Errorf("%s: %v has lost its cause", name, p)
		}
	}
	if p := problem.From(problemOf(&consistency.InvalidRequestError{Field: "f", Detail: "is odd"})); len(p.Fields) != 1 || p.Fields[0].Field != "f" {
		t.Errorf("no field in %+v", p)
	}
	if problemOf(nil) != nil {
		t.Error("no error is a problem")
	}
}
