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
	"example.com/lockstep/internal/rest"
)

// CallOptions reads the caller and the metadata of a write.
func CallOptions(ctx context.Context, expectedVersion int64, found *problem.Violations) WriteOptions {
	found.Require(expectedVersion >= 0, "expected_version", "must not be negative")
	return WriteOptions{
		Caller: auth.Of(ctx), Keys: metadata.ValueFromIncomingContext(ctx, "idempotency-key"), IfVersion: rest.IsVersion(expectedVersion),
	}
}

// SetReplayed sends idempotency-replayed as response metadata if replayed is true. REST sends it as
// a header.
func SetReplayed(ctx context.Context, replayed bool) error {
	if !replayed {
		return nil
	}
	return grpc.SetHeader(ctx, metadata.Pairs("idempotency-replayed", "true"))
}

// RefuseTombstones adds a violation if a request of the API for users asks for deleted rows.
func RefuseTombstones(req interface{ GetIncludeDeleted() bool }, found *problem.Violations) {
	found.Require(!req.GetIncludeDeleted(), "include_deleted", "must not be set: only video.replication.v1 returns deleted rows")
}

// WithAsOf adds the time and the epoch of asOf to a not-found error. A caller that gets a row gets
// both, too. Other errors stay as they are.
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

// Timestamp returns t for a message. If t is nil, the time is unknown and the field stays unset.
func Timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}
