package projection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"example.com/lockstep/pkg/eventing/consistency"
)

// Revision returns the inbox.Completeness.Revision of a build. It is the number of fields that the
// build knows in messages, including the fields of each message of a oneof. messages must include
// every message from which the projection takes data. These are the envelope of the events, with
// each payload in a oneof, and the owner's answers. A contract gains fields and loses none, so a
// build that understands more has a higher revision. The build must apply each counted field. If it
// had the new field of a contract and no column for the field, its rows would count as complete all
// the same.
func Revision(messages ...proto.Message) (fields int64) {
	for _, m := range messages {
		of := m.ProtoReflect().Descriptor().Fields()
		fields += int64(of.Len())
		for i := range of.Len() {
			if f := of.Get(i); f.ContainingOneof() != nil && !f.ContainingOneof().IsSynthetic() && f.Message() != nil {
				fields += int64(f.Message().Fields().Len())
			}
		}
	}
	return fields
}

// HasUnknown reports whether m, or a message in it, has fields that this build does not
// know.
func HasUnknown(m proto.Message) bool { return hasUnknown(m.ProtoReflect()) }

func hasUnknown(m protoreflect.Message) (found bool) {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsMap():
			if field.MapValue().Message() != nil {
				value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
					found = hasUnknown(v.Message())
					return !found
				})
			}
		case field.IsList():
			for i := range value.List().Len() {
				found = found || hasUnknown(value.List().Get(i).Message())
			}
		default:
			found = hasUnknown(value.Message())
		}
		return !found
	})
	return found
}

// Call sends one request to an owner over gRPC. It returns the errors that [Aggregate].Fetch
// documents, and ErrUnknown for the status NOT_FOUND.
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
