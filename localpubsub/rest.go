package localpubsub

// The REST surface is built at run time from the google.api.http annotations in
// the linked-in descriptors, so it is as complete and as new as the client
// library. Two existing transcoders were considered: vanguard returns a bare
// google.rpc.Status where clients read Google's error object, and brings
// protocols that no client uses here; grpc-gateway needs generated code.

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
	// maxRESTBody is the 10 MB of a publish request plus room for the JSON
	// around it.
	maxRESTBody = 11 << 20
	// maxRESTAnswer bounds the size of a page of a list; a pull stays far below
	// it.
	maxRESTAnswer = 64 << 20
	// restCallTime bounds a call, and before it the sending of the request. The
	// longest call is a pull that waits for messages.
	restCallTime = 2 * time.Minute
)

// rest serves JSON over HTTP for the unary methods of Pub/Sub and IAM, as the
// service does: bodies and answers in protojson's camelCase, 64-bit integers as
// strings, errors as {"error": {"code", "message", "status", "details"}}.
// https://cloud.google.com/pubsub/docs/reference/rest
type rest struct {
	conn   grpc.ClientConnInterface
	routes routes
}

// newREST calls conn for each request. The HTTP server bounds the time that a
// client takes to send one and to read the answer.
func newREST(conn grpc.ClientConnInterface) http.Handler {
	return &rest{conn: conn, routes: annotatedRoutes()}
}

func (s *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), restCallTime)
	defer cancel()
	answer, err := s.call(ctx, w, r)
	if err != nil {
		writeError(w, status.Convert(err))
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *rest) call(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	route, path, err := s.routes.find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRESTBody))
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
	if err := s.conn.Invoke(ctx, route.method, request, answer, grpc.MaxCallRecvMsgSize(maxRESTAnswer)); err != nil {
		return nil, err
	}
	return protojson.Marshal(answer)
}

// errorBody is Google's error object; the client libraries read all four
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

// writeJSON indents as the service does. That also removes the spaces that
// protojson adds at random.
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

// httpStatus is the mapping of google/rpc/code.proto.
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
