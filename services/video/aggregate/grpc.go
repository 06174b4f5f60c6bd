package aggregate

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
)

// CallOptions reads the caller and the metadata of a write.
func CallOptions(ctx context.Context, expectedVersion int64, found *problem.Violations) WriteOptions {
	found.Require(expectedVersion >= 0, "expected_version", "must not be negative")
	return WriteOptions{
		Caller: auth.Of(ctx), Keys: metadata.ValueFromIncomingContext(ctx, "idempotency-key"), IfVersion: expectedVersion,
	}
}

// SetReplayed sends, as response metadata, the fact that REST sends as a header.
func SetReplayed(ctx context.Context, replayed bool) error {
	if !replayed {
		return nil
	}
	return grpc.SetHeader(ctx, metadata.Pairs("idempotency-replayed", "true"))
}

// WithAsOf adds the time and the epoch of the answer to the error that there is no such
// row, as any other answer has them.
func WithAsOf(err error, asOf AsOf) error {
	none, ok := errors.AsType[*problem.Error](err)
	if !ok || none.Code != problem.CodeNotFound {
		return err
	}
	dated := *none
	dated.Extra = map[string]any{"epoch": asOf.Epoch}
	if asOf.Time != nil {
		dated.Extra["as_of"] = *asOf.Time
	}
	return &dated
}

// Timestamp is t in a message; an unknown time is an unset field.
func Timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
