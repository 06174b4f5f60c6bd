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
	st, ok := status.FromError(err)
	if !ok {
		return ""
	}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason()
		}
	}
	return ""
}
