package serve

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/problem"
)

// callKey is the context key of the *atomic.Bool that says whether an interceptor
// has taken over the call.
type callKey struct{}

// reached notes that an interceptor has taken over the call, so that handler does not log it.
func reached(ctx context.Context) {
	if r, ok := ctx.Value(callKey{}).(*atomic.Bool); ok {
		r.Store(true)
	}
}

// handler is the gRPC half of the port. It bounds each request before grpc-go reads the request,
// because grpc.Server.ServeHTTP collects a body as fast as the body comes, in a list without a
// limit (grpc/grpc-go#7261). handler refuses compressed requests, unknown methods, and requests
// that the guard does not admit. It logs and counts each request that ends before an interceptor
// sees it. When ending is cancelled, the calls to gRPC's own services end.
func (g *GRPC) handler(ending context.Context) http.Handler {
	methods := g.methods()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started, taken := time.Now(), &atomic.Bool{}
		own, known := methods[r.URL.Path]
		method := "unknown"
		if known {
			method = r.URL.Path
		}
		ctx, end := context.WithCancelCause(context.WithValue(r.Context(), callKey{}, taken))
		defer end(nil)
		limit := requestTimeout + writeGrace
		if own != nil {
			timed, cancel := context.WithTimeout(ctx, own.time)
			defer cancel()
			defer context.AfterFunc(ending, cancel)()
			ctx, limit = timed, own.time+writeGrace
		}
		boundAnswer(w, limit)
		if own != nil {
			defer g.enter(ctx, method, own, end, w)() // behind boundAnswer, which would undo an earlier end of the answer
		}
		r = r.WithContext(ctx)
		r.Body = http.MaxBytesReader(w, r.Body, frameHeaderBytes+maxMessageBytes)
		r, leave, refusal := g.admit(method, r)
		if refusal != nil {
			if refusal.RetryAfter > 0 {
				w.Header().Set(pushback, milliseconds(refusal.RetryAfter))
			}
			answerStatus(w, refusal.GRPCStatus())
		} else {
			defer leave()
			g.serve(w, r, own)
			if own != nil && ctx.Err() != nil {
				endCancelled(ctx, w)
			}
		}
		if !taken.Load() {
			g.noteRefused(ctx, method, time.Since(started), statusOf(ctx, w))
		}
	})
}

// enter is own.enter, and breaks off a call that own does not take.
func (g *GRPC) enter(ctx context.Context, method string, o *own, end context.CancelCauseFunc, w http.ResponseWriter) (leave func()) {
	leave, ok := o.enter(end, w)
	if !ok {
		g.noteRefused(ctx, method, 0, errReplaced.GRPCStatus().Err())
		panic(http.ErrAbortHandler) //nolint:forbidigo // the only way to break off a request
	}
	return leave
}

// serve passes an admitted request to grpc-go. Methods of ours are unary.
func (g *GRPC) serve(w http.ResponseWriter, r *http.Request, own *own) {
	if own != nil {
		g.server.ServeHTTP(w, r)
		return
	}
	a := &answer{ResponseWriter: w}
	g.server.ServeHTTP(a, r)
	a.end()
}

// admit returns the request with its caller in the context. Call leave when the request ends. If
// the request must not be passed to grpc-go, admit returns the reason as refusal.
func (g *GRPC) admit(method string, r *http.Request) (admitted *http.Request, leave func(), refusal *problem.Error) {
	if refusal := refuse(method, r); refusal != nil {
		return nil, nil, refusal
	}
	admitted, leave, err := g.guard.admit(method, r)
	if err != nil {
		refusal = problem.From(err)
		refusal.Log(r.Context(), g.log)
		return nil, nil, refusal
	}
	return admitted, leave, nil
}

// refuse returns the reason why a request is not passed to grpc-go, or nil. It refuses a compressed
// request. grpc-go could unpack the request, because client libraries of Google and of
// OpenTelemetry register gzip for the whole process.
func refuse(method string, r *http.Request) *problem.Error {
	coding := r.Header.Get("Grpc-Encoding")
	switch {
	case method == "unknown":
		return problem.New(problem.CodeMethodNotAllowed, "METHOD_NOT_FOUND", "There is no such method.")
	case coding != "" && coding != "identity":
		p := problem.New(problem.CodeMethodNotAllowed, "COMPRESSION_NOT_SUPPORTED", "The request must not be compressed.")
		p.Fields = []problem.Field{{Field: "grpc-encoding", Detail: "must be identity, or absent"}}
		return p
	}
	return nil
}

// answerStatus answers with a status and no message.
func answerStatus(w http.ResponseWriter, s *status.Status) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Accept-Encoding", "identity")
	h.Set("Grpc-Status", strconv.Itoa(int(s.Code())))
	h.Set("Grpc-Message", s.Message())
	if details, err := protobuf.Marshal(s.Proto()); err == nil {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
	w.WriteHeader(http.StatusOK)
}

// endCancelled gives an answer of gRPC's own services a status if grpc-go has written none. When the
// context of a request ends, grpc-go mostly has no time to write the status of the stream. The client
// would then report INTERNAL, as after a fault of the server.
func endCancelled(ctx context.Context, w http.ResponseWriter) {
	switch {
	case w.Header().Get("Grpc-Status") != "":
	case errors.Is(context.Cause(ctx), errReplaced):
		answerStatus(w, errReplaced.GRPCStatus())
	default:
		answerStatus(w, status.New(codes.Canceled, "the server has ended the stream"))
	}
}

// statusOf reads the answer's status from the trailers, where grpc-go writes it. A
// request that is not well-formed gRPC gets a plain HTTP answer, without a status.
func statusOf(ctx context.Context, w http.ResponseWriter) error {
	code, err := strconv.ParseUint(w.Header().Get("Grpc-Status"), 10, 32)
	switch {
	case err == nil:
		return status.Error(codes.Code(code), "")
	case ctx.Err() != nil:
		return status.Error(codes.Canceled, "")
	}
	return status.Error(codes.InvalidArgument, "")
}

// refusals are the status codes of requests that no handler sees. NewGRPC starts a series for
// each.
var refusals = []codes.Code{
	codes.Unimplemented, codes.ResourceExhausted, codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied,
}

func ofCode(code codes.Code) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("code", code.String()))
}

func (g *GRPC) noteRefused(ctx context.Context, method string, took time.Duration, err error) {
	g.refused.Add(ctx, 1, ofCode(status.Code(err)))
	g.logCall(ctx, method, took, err, true)
}
