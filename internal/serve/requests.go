package serve

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/internal/telemetry"
)

const scope = "example.com/lockstep/internal/serve"

// traced begins a trace with each request: no service of the system calls REST, and a caller
// from outside has no part in ours. Where traces are not recorded, a request has the ids alone.
func traced() func(http.Handler) http.Handler {
	if telemetry.RecordsTraces() {
		return otelhttp.NewMiddleware("http", otelhttp.WithMeterProvider(noop.NewMeterProvider()),
			otelhttp.WithFilter(func(r *http.Request) bool { return !isProbe(r.URL.Path) }),
			otelhttp.WithPublicEndpointFn(func(*http.Request) bool { return true }))
	}
	tracer := otel.Tracer(scope)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isProbe(r.URL.Path) {
				next.ServeHTTP(w, r)
				return
			}
			ctx, span := tracer.Start(r.Context(), "request")
			defer span.End()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// requests measures requests by OpenTelemetry's conventions. otelhttp takes four times as long:
// it makes the attributes of each request again, with the Host header, which may have any text
// that a client likes.
type requests struct {
	took  httpconv.ServerRequestDuration
	kinds sync.Map // of attribute.Set, by requestKind
}

// requestKind is what the metric tells of a request. Each of its parts has few values.
type requestKind struct {
	method, route, version string
	status                 int
}

func newRequests() *requests {
	took, err := httpconv.NewServerRequestDuration(otel.Meter(scope))
	if err != nil {
		otel.Handle(err)
	}
	return &requests{took: took}
}

// measured measures the requests, and gives telemetry their route: the middlewares below
// replace the request, so that it would have none. The span gets the route in place of
// the path, whose parameters are ids of users.
func (q *requests) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		began, answer := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		next.ServeHTTP(answer, r)
		r.Pattern = chi.RouteContext(r.Context()).RoutePattern()
		if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
			span.SetAttributes(semconv.URLPath(cmp.Or(r.Pattern, noRoute)))
		}
		q.record(r.Context(), requestKind{method(r), r.Pattern, version(r), cmp.Or(answer.Status(), http.StatusOK)}, time.Since(began))
	})
}

func (q *requests) record(ctx context.Context, k requestKind, took time.Duration) {
	known, ok := q.kinds.Load(k)
	if !ok {
		attributes := []attribute.KeyValue{
			semconv.HTTPRequestMethodKey.String(k.method), semconv.URLScheme("http"), semconv.HTTPResponseStatusCode(k.status),
			semconv.NetworkProtocolName("http"), semconv.NetworkProtocolVersion(k.version),
		}
		if k.route != "" {
			attributes = append(attributes, semconv.HTTPRoute(k.route))
		}
		known, _ = q.kinds.LoadOrStore(k, attribute.NewSet(attributes...))
	}
	q.took.RecordSet(ctx, took.Seconds(), known.(attribute.Set))
}

// version is one of three, whatever a client writes.
func version(r *http.Request) string {
	switch {
	case r.ProtoMajor >= 2:
		return "2.0"
	case r.ProtoAtLeast(1, 1):
		return "1.1"
	}
	return "1.0"
}
