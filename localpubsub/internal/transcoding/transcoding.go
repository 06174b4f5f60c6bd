// Package transcoding serves Google's REST API as calls of a gRPC server, for
// the unary methods of Pub/Sub and IAM
// (https://cloud.google.com/pubsub/docs/reference/rest). Bodies and answers are
// in protojson's camelCase, with 64-bit integers as strings. Errors have the
// form {"error": {"code", "message", "status", "details"}}.
//
// The routes are built at run time from the google.api.http annotations in the
// linked-in descriptors, so they are as complete and as new as the client
// library. Two existing transcoders were considered. vanguard returns a bare
// google.rpc.Status, although clients read Google's error object, and brings
// protocols that no client uses here. grpc-gateway needs generated code.
package transcoding

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	// maxBody is the limit of 10 MB for a publish request, plus room for the
	// JSON around it.
	maxBody = 11 << 20
	// maxAnswer bounds the size of a page of a list. The answer to a pull is
	// far smaller.
	maxAnswer = 64 << 20
	// CallTime bounds a call, and also the sending of the request before it.
	// The longest call is a pull that waits for messages.
	CallTime = 2 * time.Minute
)

// A handler transcodes requests to calls of conn.
type handler struct {
	conn   grpc.ClientConnInterface
	routes routes
}

// NewHandler returns a handler that calls conn for each request. The HTTP
// server must bound the time in which a client sends a request and reads the
// answer.
func NewHandler(conn grpc.ClientConnInterface) http.Handler {
	return &handler{conn: conn, routes: annotatedRoutes()}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), CallTime)
	defer cancel()
	answer, err := h.call(ctx, w, r)
	if err != nil {
		writeError(w, status.Convert(err))
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (h *handler) call(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	route, path, err := h.routes.find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, status.Errorf(codes.InvalidArgument, "the request's body has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the request's body: %v", err)
	}
	request, err := route.request(path, r.URL.RawQuery, body)
	if err != nil {
		return nil, err
	}
	answer := route.output.New().Interface()
	if err := h.conn.Invoke(ctx, route.method, request, answer, grpc.MaxCallRecvMsgSize(maxAnswer)); err != nil {
		return nil, err
	}
	return protojson.Marshal(answer)
}

// errorBody is Google's error object. The client libraries read all four
// fields. https://google.aip.dev/193#http11json-representation
type errorBody struct {
	Code    int               `json:"code"`
	Message string            `json:"message"`
	Status  string            `json:"status"`
	Details []json.RawMessage `json:"details,omitempty"`
}

func writeError(w http.ResponseWriter, s *status.Status) {
	body := errorBody{Code: httpStatus(s.Code()), Message: s.Message(), Status: code.Code(s.Code()).String()}
	for _, detail := range s.Proto().GetDetails() {
		// A detail of a type that is not linked in has no JSON form.
		if encoded, err := protojson.Marshal(detail); err == nil {
			body.Details = append(body.Details, encoded)
		}
	}
	encoded, err := json.Marshal(map[string]errorBody{"error": body})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, body.Code, encoded)
}

// writeJSON indents the body as the service does. That also removes the spaces
// that protojson adds at random.
func writeJSON(w http.ResponseWriter, code int, body []byte) {
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	indented.WriteByte('\n')
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(code)
	_, _ = w.Write(indented.Bytes()) // the client may have gone
}

// httpStatus maps a code to an HTTP status as in google/rpc/code.proto.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Canceled:
		return 499 // Client Closed Request
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	default:
		return http.StatusInternalServerError
	}
}
