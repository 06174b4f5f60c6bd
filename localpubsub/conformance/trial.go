package conformance

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// patience is how long a trial waits for an event that must come.
	patience = 20 * time.Second
	// silence is how long a trial listens for messages that must not come. A
	// wrong message would come at once.
	silence = 1500 * time.Millisecond
	// slack is how much earlier than its deadline an event may come. The server and this process
	// read their clocks at different moments, and deadlines are best effort.
	slack = 200 * time.Millisecond
)

// trial is one run of one behaviour against one subject. If a check fails, the methods end the
// trial, like the methods of testing.T. So only the goroutine of the trial may call the methods.
type trial struct {
	*Subject

	ctx      context.Context //nolint:containedctx // as a testing.T: each call of a trial ends with it
	id       string          // prefix of the names of its resources
	project  string
	names    int
	cleanups []func(context.Context)
	failure  error
}

// must ends the trial on an error.
func (t *trial) must(err error) {
	if err != nil {
		t.failf("%w", err)
	}
}

// code ends the trial unless err has one of the codes.
func (t *trial) code(what string, err error, want ...codes.Code) {
	if !slices.Contains(want, status.Code(err)) {
		t.failf("%s: got %s, want %s", what, describe(err), anyOf(want))
	}
}

// refused ends the trial unless err has one of the codes that blame the caller. For many forbidden
// requests, the documentation does not name the code.
func (t *trial) refused(what string, err error) {
	t.code(what, err, codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange)
}

func describe(err error) string {
	if err == nil {
		return "no error"
	}
	return status.Code(err).String() + " (" + status.Convert(err).Message() + ")"
}

func anyOf(want []codes.Code) string {
	names := make([]string, len(want))
	for i, c := range want {
		names[i] = c.String()
	}
	return strings.Join(names, " or ")
}

// checkf ends the trial unless the condition holds.
func (t *trial) checkf(holds bool, format string, args ...any) {
	if !holds {
		t.failf(format, args...)
	}
}

// equal ends the trial unless got equals want.
func equal[T comparable](t *trial, what string, got, want T) {
	if got != want {
		t.failf("%s is %v, want %v", what, got, want)
	}
}

// sameSet ends the trial unless got and want hold the same elements, in any
// order.
func (t *trial) sameSet(what string, got, want []string) {
	got, want = slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		t.failf("%s are %q, want %q", what, got, want)
	}
}

// patiently returns a context for one wait. The context ends after patience.
func (t *trial) patiently() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, patience)
}

// await waits for d, so that a deadline of the server can pass.
func (t *trial) await(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.failf("%w", t.ctx.Err())
	}
}

// notBefore ends the trial if the time at is less than d after the time from. at is the time at
// which a message came again.
func (t *trial) notBefore(at, from time.Time, d time.Duration) {
	if after := at.Sub(from); after < d-slack {
		t.failf("it came again after %v instead of %v", after.Round(time.Millisecond), d)
	}
}

// listed ends the trial unless the pages of list contain each name of want
// exactly once and no page is longer than size.
func (t *trial) listed(size int, want []string, list func(token string) (names []string, next string, err error)) {
	seen := make(map[string]int)
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		names, next, err := list(token)
		t.must(err)
		t.checkf(len(names) <= size, "a page holds %d, want at most %d", len(names), size)
		t.checkf(pages < 1000, "the pages do not end")
		for _, name := range names {
			seen[name]++
		}
		token = next
	}
	for _, name := range want {
		t.checkf(seen[name] == 1, "%s is listed %d times, want once", name, seen[name])
	}
}
