package problem

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

const contentType = "application/problem+json"

// Write answers the request with err as a problem document (RFC 9457) and logs errors
// that are not the client's fault. Nothing may have been written to w before.
func Write(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	e := From(err)
	e.Log(r.Context(), log)
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(e.RetryAfter))
	}
	body, err := json.Marshal(e.document(r))
	if err != nil {
		log.ErrorContext(r.Context(), "problem document not encoded", "error", err)
	}
	body = append(body, '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.Code.rendering().http)
	if _, err := w.Write(body); err != nil {
		log.DebugContext(r.Context(), "write problem document", "error", err)
	}
}

// document returns the problem document. It derives the type and the title from the reason, so
// that they are as stable as the reason. The list of errors is empty if no field is at fault.
func (e *Error) document(r *http.Request) map[string]any {
	words := strings.ToLower(e.reason())
	title := strings.ReplaceAll(words, "_", " ")
	doc := maps.Clone(e.Extra)
	if doc == nil {
		doc = map[string]any{}
	}
	doc["type"] = "/problems/" + strings.ReplaceAll(words, "_", "-")
	doc["title"] = strings.ToUpper(title[:1]) + title[1:]
	doc["status"] = e.Code.rendering().http
	doc["reason"] = e.reason()
	doc["detail"] = e.Detail
	doc["instance"] = instance(r)
	doc["errors"] = append([]Field{}, e.Fields...) // a list without elements is [], not null
	if id := e.traceID(r.Context()); id != "" {
		doc["trace_id"] = id
	}
	return doc
}

// traceID returns the trace of the request, for an error that has a log line in this trace. With it an operator finds the
// line that a client's report is about. Other errors say themselves how to correct the request.
func (e *Error) traceID(ctx context.Context) string {
	span := trace.SpanContextFromContext(ctx)
	if !span.HasTraceID() || e.Code != CodeInternal && e.Code != CodeUnavailable && e.Code != CodeTimeout {
		return ""
	}
	return span.TraceID().String()
}

// instance returns the path of the request. It cuts a very long path, because an answer must not
// be larger than its request.
func instance(r *http.Request) string {
	path := r.URL.EscapedPath()
	return path[:min(len(path), maxText)]
}

// retryAfterSeconds rounds up, because a header of 0 would invite an immediate retry.
func retryAfterSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// domain is the domain of an ErrorInfo. It makes our reasons distinct from those of other services (AIP-193).
const domain = "lockstep"

// GRPCStatus renders the error for gRPC. gRPC also finds this method by itself, so it is enough
// to return an *Error from a handler.
func (e *Error) GRPCStatus() *status.Status { return e.StatusIn(context.Background()) }

// StatusIn is GRPCStatus for an answer to the call of ctx. An error that is not the client's fault also has a RequestInfo. Its
// request_id is the call's trace.
func (e *Error) StatusIn(ctx context.Context) *status.Status {
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Domain: domain, Reason: e.reason(), Metadata: e.metadata()},
	}
	if len(e.Fields) > 0 {
		details = append(details, e.badRequest())
	}
	if e.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if id := e.traceID(ctx); id != "" {
		details = append(details, &errdetails.RequestInfo{RequestId: id})
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
func ReasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info.GetReason()
		}
	}
	return ""
}
