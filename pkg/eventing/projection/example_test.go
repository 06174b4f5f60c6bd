package projection_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/projection"
)

// Call turns the answer of a generated client into the errors that an Aggregate returns.
func ExampleCall() {
	type (
		request  struct{ id string }
		response struct{ version int64 }
	)
	getOrder := func(_ context.Context, r *request, _ ...grpc.CallOption) (*response, error) {
		switch r.id {
		case "17":
			return &response{version: 3}, nil
		case "18":
			return nil, status.Error(codes.NotFound, "no such order")
		}
		return nil, status.Error(codes.Unavailable, "starting")
	}
	for _, id := range []string{"17", "18", "19"} {
		found, err := projection.Call(context.Background(), time.Second, getOrder, &request{id})
		fmt.Println(id, found != nil, errors.Is(err, projection.ErrUnknown), errors.Is(err, consistency.ErrOwnerUnavailable))
	}
	// Output:
	// 17 true false false
	// 18 false true false
	// 19 false false true
}
