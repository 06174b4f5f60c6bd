package client

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
)

// domain is that of the pair's reasons, which differ from those of other services.
const domain = "lockstep"

// Reason returns the reason of an error that a call has returned, such as VERSION_MISMATCH. It is empty
// for an error without a reason, such as one of the connection.
func Reason(err error) string {
	for _, detail := range details(err) {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason()
		}
	}
	return ""
}

// TraceID returns the trace of the call that has returned err, for a report to those who operate the services: it is in the
// log line of the error. It is empty if the error is the caller's fault, or has not come from a service.
func TraceID(err error) string {
	for _, detail := range details(err) {
		if info, ok := detail.(*errdetails.RequestInfo); ok {
			return info.GetRequestId()
		}
	}
	return ""
}

func details(err error) []any {
	st, _ := status.FromError(err) // of another error, it has none
	return st.Details()
}
