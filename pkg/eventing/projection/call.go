package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/consistency"
)

// Call sends one request to an owner over gRPC. Its errors are those of
// [Aggregate].Fetch.
func Call[Q, A any](ctx context.Context, timeout time.Duration,
	call func(context.Context, *Q, ...grpc.CallOption) (*A, error), request *Q,
) (*A, error) {
	calling, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := call(calling, request)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case status.Code(err) == codes.NotFound:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", consistency.ErrOwnerUnavailable, err)
	}
	return answer, nil
}
