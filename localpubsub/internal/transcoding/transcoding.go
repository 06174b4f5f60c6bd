// Package transcoding serves Google's REST API. It turns each request into a call of a gRPC server.
// It covers the unary methods of Pub/Sub and IAM
// (https://cloud.google.com/pubsub/docs/reference/rest). Bodies and answers are in the camelCase of
// protojson, with 64-bit integers as strings. Errors have the form {"error": {"code", "message",
// "status", "details"}}.
//
// The routes are built at run time from the google.api.http annotations of the descriptors in the
// client library. So the routes are as complete and as new as the client library. We considered two
// existing transcoders. vanguard returns a bare google.rpc.Status, but clients read Google's error
// object. It also has protocols that no client uses here. grpc-gateway needs generated code.
package transcoding

import (
	"bytes"
	"compress/gzip"
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
	// maxBody is the maximum size of a request's body. This is the limit of 10 MB for a publish
	// request, plus room for the JSON around the messages.
	maxBody = 11 << 20
	// maxAnswer is the maximum size of an answer. It is large enough for a page of a list. The
	// answer to a pull is far smaller.
	maxAnswer = 64 << 20
	// CallTime is the time limit of a call. It is also the time limit for reading the request. The
	// longest call is a pull that waits for messages.
	CallTime = 2 * time.Minute
)

// A handler turns HTTP requests into calls over conn.
type handler struct {
	conn   grpc.ClientConnInterface
	routes routes
}

// NewHandler returns a handler that turns each request into a call over conn. The HTTP server must
// bound the time in which a client sends its request and reads the answer.
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
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	request, err := route.request(path, r.URL.RawQuery, body)
	if err != nil {
		return nil, err
	}
	answer := route.output.New().Interface()
	if err := h.conn.Invoke(ctx, route.method, request, answer, grpc.MaxCallRecvMsgSize(maxAnswer)); err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseEnumNumbers: wantsNumbers(r.URL.Query())}.Marshal(answer)
}

// readBody reads a body, which may be compressed with gzip. maxBody bounds it before and after that.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body := http.MaxBytesReader(w, r.Body, maxBody)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "read the request's body: %v", err)
		}
		body = http.MaxBytesReader(w, unzipped, maxBody)
	default:
		return nil, status.Errorf(codes.InvalidArgument, "Content-Encoding %q: gzip is the only one", encoding)
	}
	read, err := io.ReadAll(body)
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, status.Errorf(codes.InvalidArgument, "the request's body has more than %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the request's body: %v", err)
	}
	return read, nil
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

// writeJSON writes the body, indented like the answers of the service. The indentation also removes
// the spaces that protojson adds at random.
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

// httpStatus returns the HTTP status of a gRPC code, as google/rpc/code.proto defines it.
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
