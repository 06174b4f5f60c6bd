package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/fresh"
)

// Ask sends one question to an owner over gRPC. Its errors are those of Table.Ask.
func Ask[Q, A any](ctx context.Context, timeout time.Duration,
	call func(context.Context, *Q, ...grpc.CallOption) (*A, error), question *Q,
) (*A, error) {
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := call(asking, question)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, ctx.Err()
	case status.Code(err) == codes.NotFound:
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", fresh.ErrOwnerAway, err)
	}
	return answer, nil
}
