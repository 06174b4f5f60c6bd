// Package problem is the one error that REST and gRPC both render.
//
// Domain code returns an [*Error] for faults that a client must know, and any other error for
// faults that a client must not know. [From] turns every error into an Error. An unavailable
// database becomes UNAVAILABLE, and a deadline becomes DEADLINE_EXCEEDED. An unclassified error
// becomes INTERNAL with a generic text. Its cause is logged and never shown. [Write] renders an
// Error as an RFC 9457 problem document. [Error.GRPCStatus] renders it as a google.rpc.Status
// with ErrorInfo, BadRequest and RetryInfo. An error that is not the client's fault also names the trace
// of its request.
//
// A client programs against the reason (UPPER_SNAKE, stable) and the field names. Titles and
// details are for people, so they may change.
package problem

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
)

// Field is the fault of one field of the request. Its member Field is the path as the client
// wrote it ("title", "items[2].name"). The path "body" over REST and "request" over gRPC mean
// the whole message.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is an error on whose form clients can rely. Code and Detail are required, and all other
// fields may be zero. An Error must not be changed after it was returned.
type Error struct {
	Code Code
	// Reason is stable and documented. If it is empty, the code's own reason is used.
	Reason string
	// Detail is one sentence for a person. It is shown to the client.
	Detail string
	Fields []Field
	// RetryAfter is how long a client should wait before the same request may succeed. Zero
	// promises nothing.
	RetryAfter time.Duration
	// Extra has further top-level members of the problem document. As strings, they are also the
	// metadata of the ErrorInfo. Extra cannot replace a standard member.
	Extra map[string]any
	// Cause is logged and never shown.
	Cause error
	// Logged says that the cause is logged already. The error then gets no line above DEBUG,
	// because many requests may have the same cause.
	Logged bool
}

// New returns an error without fields. If reason is empty, the code's own reason is used.
func New(code Code, reason, detail string) *Error {
	return &Error{Code: code, Reason: reason, Detail: detail}
}

// Invalid is the error for one faulty field of the request.
func Invalid(field, detail string) *Error {
	return InvalidFields([]Field{{Field: field, Detail: detail}})
}

// InvalidFields is the error for several faulty fields of the request. fields must have at least
// one element.
func InvalidFields(fields []Field) *Error {
	details := make([]string, len(fields))
	for i, f := range fields {
		details[i] = f.Field + ": " + f.Detail
	}
	return &Error{Code: CodeInvalid, Detail: strings.Join(details, "; "), Fields: fields}
}

// Error returns the text for logs. Unlike the text for the client, it ends with the cause.
func (e *Error) Error() string {
	text := e.reason() + ": " + e.Detail
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Log writes a line for an error that is not the client's fault. The level is ERROR if the fault is
// ours, and WARN if a dependency is unavailable or slow. The level is DEBUG if the cause is logged
// already. Log also writes the fault of a token at DEBUG, because the answer does not name that
// fault.
func (e *Error) Log(ctx context.Context, log *slog.Logger) {
	switch {
	case e.Logged || e.Code == CodeUnauthenticated:
		log.DebugContext(ctx, "request refused", "reason", e.reason(), "error", e)
	case e.Code == CodeInternal:
		log.ErrorContext(ctx, "request failed", "reason", e.reason(), "error", e)
	case e.Code == CodeUnavailable, e.Code == CodeTimeout:
		log.WarnContext(ctx, "request failed", "reason", e.reason(), "error", e)
	}
}

func (e *Error) reason() string { return cmp.Or(e.Reason, e.Code.rendering().reason) }

// Code classifies an error. It decides the HTTP status, the gRPC code and, unless the caller of
// New gives one, the reason.
type Code int

// The codes.
const (
	CodeInternal         Code = iota // ours; the zero value, so that an unclassified error is never the client's fault
	CodeInvalid                      // the request can never succeed as it is
	CodeUnauthenticated              // the request has no valid identity
	CodeDenied                       // the caller is known, but may not do this
	CodeNotFound                     // there is no such thing
	CodeGone                         // there was such a thing; it was deleted
	CodeStale                        // If-Match named a version that is no longer the newest
	CodeAhead                        // the consistency token is newer than anything its owner has written
	CodeKeyReused                    // an idempotency key came again with another request
	CodeTooLarge                     // the body is over the limit
	CodeMediaType                    // the body is in a format that the endpoint does not take
	CodeMethodNotAllowed             // the path exists, but not with this method
	CodeTooMany                      // a bound on concurrent work was reached
	CodeUnavailable                  // a dependency is unavailable; the same request may succeed later
	CodeTimeout                      // the request's time ran out
	CodeCanceled                     // the client cancelled or disconnected
)

// statusClientClosed is the status that proxies log for a client that disconnected. net/http has no
// name for this status.
const statusClientClosed = 499

type rendering struct {
	http   int
	grpc   codes.Code
	reason string
}

// rendering returns the HTTP status, the gRPC code and the default reason of c. No other place has them.
func (c Code) rendering() rendering {
	return [...]rendering{
		CodeInternal:         {http.StatusInternalServerError, codes.Internal, "INTERNAL"},
		CodeInvalid:          {http.StatusBadRequest, codes.InvalidArgument, "INVALID_ARGUMENT"},
		CodeUnauthenticated:  {http.StatusUnauthorized, codes.Unauthenticated, "UNAUTHENTICATED"},
		CodeDenied:           {http.StatusForbidden, codes.PermissionDenied, "PERMISSION_DENIED"},
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
