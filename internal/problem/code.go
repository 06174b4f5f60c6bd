package problem

import (
	"net/http"

	"google.golang.org/grpc/codes"
)

// Code classifies an error. It decides the HTTP status, the gRPC code and,
// where the caller of New gives none, the reason.
type Code int

// The codes.
const (
	CodeInternal         Code = iota // ours; the zero value, so that an unclassified error is never the client's fault
	CodeInvalid                      // the request can never succeed as it is
	CodeNotFound                     // there is no such thing
	CodeGone                         // there was such a thing; it was deleted
	CodeStale                        // If-Match named a version that is no longer the newest
	CodeAhead                        // the consistency token is newer than anything its owner has written
	CodeKeyReused                    // an idempotency key came again with another request
	CodeTooLarge                     // the body is over the limit
	CodeMediaType                    // the body is in a format that the endpoint does not take
	CodeMethodNotAllowed             // the path exists, the method on it does not
	CodeTooMany                      // a bound on concurrent work was reached
	CodeUnavailable                  // a dependency is unavailable; the same request may succeed later
	CodeTimeout                      // the request's time ran out
	CodeCanceled                     // the client cancelled or disconnected
)

// statusClientClosed is the status that proxies log for a client that disconnected;
// net/http has no name for it.
const statusClientClosed = 499

type rendering struct {
	http   int
	grpc   codes.Code
	reason string
}

// rendering is the one table of each code's form on each transport.
func (c Code) rendering() rendering {
	return [...]rendering{
		CodeInternal:         {http.StatusInternalServerError, codes.Internal, "INTERNAL"},
		CodeInvalid:          {http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT"},
		CodeNotFound:         {http.StatusNotFound, codes.NotFound, "NOT_FOUND"},
		CodeGone:             {http.StatusGone, codes.NotFound, "GONE"},
		CodeStale:            {http.StatusPreconditionFailed, codes.Aborted, "VERSION_MISMATCH"},
		CodeAhead:            {http.StatusConflict, codes.FailedPrecondition, "TOKEN_AHEAD"},
		CodeKeyReused:        {http.StatusUnprocessableEntity, codes.InvalidArgument, "IDEMPOTENCY_KEY_REUSED"},
		CodeTooLarge:         {http.StatusRequestEntityTooLarge, codes.InvalidArgument, "TOO_LARGE"},
		CodeMediaType:        {http.StatusUnsupportedMediaType, codes.InvalidArgument, "UNSUPPORTED_MEDIA_TYPE"},
		CodeMethodNotAllowed: {http.StatusMethodNotAllowed, codes.Unimplemented, "METHOD_NOT_ALLOWED"},
		CodeTooMany:          {http.StatusTooManyRequests, codes.ResourceExhausted, "TOO_MANY_REQUESTS"},
		CodeUnavailable:      {http.StatusServiceUnavailable, codes.Unavailable, "UNAVAILABLE"},
		CodeTimeout:          {http.StatusGatewayTimeout, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
		CodeCanceled:         {statusClientClosed, codes.Canceled, "CANCELED"},
	}[c]
}
