package problem

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// domain makes our reasons distinct from those of other services (AIP-193).
const domain = "lockstep"

// GRPCStatus renders the error for gRPC, which also finds this method by
// itself: returning an *Error from a handler is enough.
func (e *Error) GRPCStatus() *status.Status {
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Domain: domain, Reason: e.reason(), Metadata: e.metadata()},
	}
	if len(e.Fields) > 0 {
		details = append(details, e.badRequest())
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	bare := status.New(e.Code.rendering().grpc, e.Detail)
	full, err := bare.WithDetails(details...)
	if err != nil {
		return bare // the code matters more than details that cannot be encoded
	}
	return full
}

func (e *Error) badRequest() *errdetails.BadRequest {
	bad := &errdetails.BadRequest{}
	for _, f := range e.Fields {
		bad.FieldViolations = append(bad.FieldViolations,
			&errdetails.BadRequest_FieldViolation{Field: f.Field, Description: f.Detail})
	}
	return bad
}

func (e *Error) metadata() map[string]string {
	if len(e.Extra) == 0 {
		return nil
	}
	metadata := make(map[string]string, len(e.Extra))
	for name, value := range e.Extra {
		if t, ok := value.(time.Time); ok {
			value = t.UTC().Format(time.RFC3339Nano)
		}
		metadata[name] = fmt.Sprint(value)
	}
	return metadata
}

// ReasonOf returns the reason in an error that a call to one of our services
// returned, and "" for any other error.
func ReasonOf(err error) string { return infoOf(err).GetReason() }

// MetadataOf returns the Extra of such an error, as strings.
func MetadataOf(err error) map[string]string { return infoOf(err).GetMetadata() }

func infoOf(err error) *errdetails.ErrorInfo {
	st, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info
		}
	}
	return nil
}
