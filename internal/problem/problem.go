// Package problem is the one error that REST and gRPC both render.
//
// Domain code returns an [*Error] for faults that a client must know and any other
// error for those that it must not. [From] turns every error into an Error: an
// unavailable database becomes UNAVAILABLE, a deadline DEADLINE_EXCEEDED, and an
// unclassified error INTERNAL with a generic text; its cause is logged and never shown.
// [Write] renders it as an RFC 9457 problem document, [Error.GRPCStatus] as a
// google.rpc.Status with ErrorInfo, BadRequest and RetryInfo.
//
// A client programs against the reason (UPPER_SNAKE, stable) and the field names;
// titles and details are for people and may change.
package problem

import (
	"context"
	"log/slog"
	"strings"
	"time"
)

// Field is the fault of one field of the request. Field is its path as the client wrote
// it ("title", "items[2].name"); "body" and "request" mean the whole message over REST
// and gRPC.
type Field struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Error is an error with a contract. The zero values of all but Code and Detail
// are fine; it must not be changed after it was returned.
type Error struct {
	Code Code
	// Reason is stable and documented. If it is empty, the code's own reason is used.
	Reason string
	// Detail is one sentence for a person. It is shown to the client.
	Detail string
	Fields []Field
	// RetryAfter is how long a client should wait before the same request may
	// succeed; zero promises nothing.
	RetryAfter time.Duration
	// Extra are top-level members of the problem document and, as strings, the
	// metadata of the ErrorInfo. It cannot replace a standard member.
	Extra map[string]any
	// Cause is logged and never shown.
	Cause error
}

// New returns an error without fields. With an empty reason it has the code's own.
func New(code Code, reason, detail string) *Error {
	return &Error{Code: code, Reason: reason, Detail: detail}
}

// Invalid is the error for one faulty field of the request.
func Invalid(field, detail string) *Error {
	return InvalidFields([]Field{{Field: field, Detail: detail}})
}

// InvalidFields is the error for several faulty fields of the request; there must be
// one at least.
func InvalidFields(fields []Field) *Error {
	details := make([]string, len(fields))
	for i, f := range fields {
		details[i] = f.Field + ": " + f.Detail
	}
	return &Error{Code: CodeInvalid, Detail: strings.Join(details, "; "), Fields: fields}
}

// Error is for logs: unlike the client's text it ends with the cause.
func (e *Error) Error() string {
	text := e.reason() + ": " + e.Detail
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Log writes a line for an error that is not the client's: at ERROR where the fault is
// ours, at WARN where a dependency is unavailable or slow.
func (e *Error) Log(ctx context.Context, log *slog.Logger) {
	switch e.Code {
	case CodeInternal:
		log.ErrorContext(ctx, "request failed", "reason", e.reason(), "error", e)
	case CodeUnavailable, CodeTimeout:
		log.WarnContext(ctx, "request failed", "reason", e.reason(), "error", e)
	default: // the client's own
	}
}

func (e *Error) reason() string {
	if e.Reason != "" {
		return e.Reason
	}
	return e.Code.rendering().reason
}
