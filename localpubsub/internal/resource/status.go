package resource

import (
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Invalid returns INVALID_ARGUMENT. The error names the field in its text and
// in a google.rpc.BadRequest.
func Invalid(field, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	s := status.New(codes.InvalidArgument, field+": "+why)
	detailed, err := s.WithDetails(&errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: field, Description: why}},
	})
	if err != nil {
		return s.Err()
	}
	return detailed.Err()
}

// Missing returns NOT_FOUND for the resource name.
func Missing(name string) error {
	return status.Errorf(codes.NotFound, "Resource not found (resource=%s).", name)
}

// Unknown returns the error of a call whose resource was not found. It is INVALID_ARGUMENT if no
// resource can have the name, and NOT_FOUND otherwise.
func Unknown(name, collection, field string) error {
	if err := CheckName(name, collection, field); err != nil {
		return err
	}
	return Missing(name)
}

// Taken returns ALREADY_EXISTS for the resource name.
func Taken(name string) error {
	return status.Errorf(codes.AlreadyExists, "Resource already exists in the project (resource=%s).", name)
}
