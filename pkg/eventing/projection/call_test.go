package projection_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/projection"
)

// The time is the bubble's: an owner that hangs takes exactly its timeout.
func TestCall(t *testing.T) {
	t.Parallel()
	type question struct{ text string }
	type answer struct{ text string }
	const timeout = 3 * time.Second
	for name, tc := range map[string]struct {
		answer  error
		hangs   bool
		patient time.Duration // until the caller's deadline; 0: no deadline
		hangsUp time.Duration // when the caller goes; 0: never
		want    []error
		took    time.Duration
	}{
		"answers":                    {},
		"does not know":              {answer: status.Error(codes.NotFound, "no such thing"), want: []error{projection.ErrUnknown}},
		"is away":                    {answer: status.Error(codes.Unavailable, "away"), want: []error{consistency.ErrOwnerUnavailable}},
		"refuses":                    {answer: status.Error(codes.PermissionDenied, "who are you"), want: []error{consistency.ErrOwnerUnavailable}},
		"hangs":                      {hangs: true, want: []error{consistency.ErrOwnerUnavailable, context.DeadlineExceeded}, took: timeout},
		"hangs beyond the caller's":  {hangs: true, patient: time.Second, want: []error{consistency.ErrOwnerUnavailable, context.DeadlineExceeded}, took: time.Second},
		"hangs, and the caller goes": {hangs: true, hangsUp: time.Second, want: []error{context.Canceled}, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, hangUp := context.WithCancel(t.Context())
				defer hangUp()
				if tc.patient > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.patient)
					defer cancel()
				}
				if tc.hangsUp > 0 {
					defer time.AfterFunc(tc.hangsUp, hangUp).Stop()
				}
				began := time.Now()
				got, err := projection.Call(ctx, timeout, func(ctx context.Context, q *question, _ ...grpc.CallOption) (*answer, error) {
					if tc.hangs {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return &answer{"to " + q.text}, tc.answer
				}, &question{"which"})
				if took := time.Since(began); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if tc.want == nil && (err != nil || got.text != "to which") || tc.want != nil && got != nil {
					t.Errorf("%v, %v", got, err)
				}
				for _, want := range tc.want {
					if !errors.Is(err, want) {
						t.Errorf("error %v, want %v", err, want)
					}
				}
				if errors.Is(err, context.Canceled) && errors.Is(err, consistency.ErrOwnerUnavailable) {
					t.Error("the owner is blamed for a caller who has gone")
				}
			})
		})
	}
}
