package serve_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.com/lockstep/internal/problem"
)

// retries is a policy of retries as gRPC's clients have it in their service config.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 3, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// A client's policy applies to an error that comes without headers only. The pause is the one that
// RetryInfo names, because gRPC itself does not read RetryInfo.
func TestPoliciesOfRetriesApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		var calls atomic.Int64
		echo(func(_ context.Context, text string) (string, error) {
			if calls.Add(1) < 3 {
				return "", &problem.Error{Code: problem.CodeUnavailable, Reason: "LOCKED", Detail: "é", RetryAfter: 1500 * time.Millisecond}
			}
			return text, nil
		}).register(s.grpc)
		d := s.startInBubble(t)
		began := time.Now()
		got, err := say(t.Context(), d.grpcClient(t, grpc.WithDefaultServiceConfig(retries)), "again")
		if took := time.Since(began); err != nil || got != "again" || calls.Load() != 3 || took != 3*time.Second {
			t.Errorf("%q, %v after %d calls in %s", got, err, calls.Load(), took)
		}
		d.end(t)
	})
}

// A call whose deadline comes before the end of the pause is not repeated. It ends with its own error, and
// does not wait for the deadline.
func TestNoRetryIsWaitedForInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(io.Discard)
		echo(func(context.Context, string) (string, error) {
			return "", &problem.Error{Code: problem.CodeUnavailable, Reason: "LOCKED", RetryAfter: 1500 * time.Millisecond}
		}).register(s.grpc)
		d := s.startInBubble(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := say(ctx, d.grpcClient(t, grpc.WithDefaultServiceConfig(retries)), "")
		if took := time.Since(began); problem.ReasonOf(err) != "LOCKED" || took != 0 {
			t.Errorf("%v after %s, want LOCKED at once", err, took)
		}
		d.end(t)
	})
}

// An error keeps its details, and the metadata of its handler in the headers.
func TestErrorsKeepTheirMetadata(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	echo(func(ctx context.Context, text string) (string, error) {
		if text != "" {
			if err := grpc.SetHeader(ctx, metadata.Pairs("consistency-token", text)); err != nil {
				return "", err
			}
		}
		return "", problem.New(problem.CodeGone, "VIDEO_DELETED", "Déleted.")
	}).register(s.grpc)
	conn := dial(t, s.start(t))
	for _, token := range []string{"", "t"} {
		var header, trailer metadata.MD
		err := conn.Invoke(t.Context(), "/test.Echo/Say", wrapperspb.String(token), new(wrapperspb.StringValue), grpc.Header(&header), grpc.Trailer(&trailer))
		if status.Code(err) != codes.NotFound || status.Convert(err).Message() != "Déleted." || problem.ReasonOf(err) != "VIDEO_DELETED" {
			t.Errorf("%q: %v", token, err)
		}
		if got := header.Get("consistency-token"); (len(got) == 1) != (token != "") || len(trailer.Get("consistency-token")) > 0 {
			t.Errorf("%q: headers %v, trailers %v", token, header, trailer)
		}
	}
}

// A trailer of a handler that has the name of a field of HTTP does not change the answer.
func TestTrailersOfHandlersAreMetadata(t *testing.T) {
	t.Parallel()
	s := newService(io.Discard)
	echo(func(ctx context.Context, name string) (string, error) {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(name, "5", "kept", "yes")); err != nil {
			return "", err
		}
		return "", problem.New(problem.CodeGone, "VIDEO_DELETED", "Deleted.")
	}).register(s.grpc)
	conn := dial(t, s.start(t))
	for _, name := range []string{"content-length", "connection", "trailer", "transfer-encoding", "date"} {
		var trailer metadata.MD
		err := conn.Invoke(t.Context(), "/test.Echo/Say", wrapperspb.String(name), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
		if problem.ReasonOf(err) != "VIDEO_DELETED" || len(trailer.Get("kept")) != 1 {
			t.Errorf("%s: %v, trailers %v", name, err, trailer)
		}
	}
}
