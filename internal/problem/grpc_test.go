package problem_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/problem"
)

func TestGRPCStatusCarriesDetails(t *testing.T) {
	t.Parallel()
	err := problem.Invalid("title", "is empty")
	err.RetryAfter = time.Second
	var violations []string
	var wait time.Duration
	for _, detail := range err.GRPCStatus().Details() {
		switch d := detail.(type) {
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				violations = append(violations, v.Field+" "+v.Description)
			}
		case *errdetails.RetryInfo:
			wait = d.RetryDelay.AsDuration()
		}
	}
	if diff := cmp.Diff([]string{"title is empty"}, violations); diff != "" {
		t.Errorf("field violations (-want +got):\n%s", diff)
	}
	if wait != time.Second {
		t.Errorf("retry delay %s, want 1s", wait)
	}
}

func TestCallersReadReasonAndMetadata(t *testing.T) {
	t.Parallel()
	deleted := &problem.Error{
		Code: problem.CodeGone, Reason: "VIDEO_DELETED",
		Extra: map[string]any{
			"version": int64(3), "source": "authority",
			"deleted_at": time.Date(2026, 11, 20, 13, 0, 0, 5, time.FixedZone("", 3600)),
		},
	}
	err := fmt.Errorf("get video: %w", deleted.GRPCStatus().Err())
	if got := problem.ReasonOf(err); got != "VIDEO_DELETED" {
		t.Errorf("ReasonOf = %q, want VIDEO_DELETED", got)
	}
	want := map[string]string{"version": "3", "source": "authority", "deleted_at": "2026-11-20T12:00:00.000000005Z"}
	details := status.Convert(err).Details()
	info := details[0].(*errdetails.ErrorInfo)
	if diff := cmp.Diff(want, info.GetMetadata()); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if len(details) != 1 {
		t.Errorf("%v: an error without fields and without a pause has a BadRequest or a RetryInfo", details)
	}
}

func TestReasonOfOtherErrorsIsEmpty(t *testing.T) {
	t.Parallel()
	foreign, err := status.New(codes.NotFound, "").WithDetails(&errdetails.ErrorInfo{Domain: "example.org", Reason: "GONE"})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{nil, errors.New("boom"), status.Error(codes.NotFound, ""), foreign.Err()} {
		if got := problem.ReasonOf(err); got != "" {
			t.Errorf("ReasonOf(%v) = %q, want none", err, got)
		}
	}
}
