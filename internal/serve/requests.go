package serve

import (
	"cmp"
	"io"
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
			ctx, span := tracer.Start(r.Context(), "request", trace.WithNewRoot())
			defer span.End()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// requests measures requests by OpenTelemetry's conventions. otelhttp makes the attributes of
// each request again, with the Host header, which may have any text that a client likes.
type requests struct {
	took, received, sent *telemetry.Histogram

	mu    sync.RWMutex
	kinds map[requestKind]measurements
}

// requestKind is what the metrics tell of a request.
type requestKind struct {
	method, route, version string
	status                 int
}

// maxKinds is far above the kinds that the routes have.
const maxKinds = 2000

// measurements are those of requests of one kind.
type measurements struct{ took, received, sent *telemetry.Series }

func newRequests() *requests {
	sizes := []float64{0, 5, 10, 25, 50, 75, 100, 250, 500, 750, 1000, 2500, 5000, 7500, 10000}
	return &requests{
		took: telemetry.NewHistogram(scope, "http.server.request.duration", "s", "Duration of HTTP server requests.",
			0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10),
		received: telemetry.NewHistogram(scope, "http.server.request.body.size", "By", "Size of HTTP server request bodies.", sizes...),
		sent:     telemetry.NewHistogram(scope, "http.server.response.body.size", "By", "Size of HTTP server response bodies.", sizes...),
		kinds:    map[requestKind]measurements{},
	}
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
		began, body, answer := time.Now(), &countedBody{ReadCloser: r.Body}, middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = body
		}
		next.ServeHTTP(answer, r)
		r.Pattern = chi.RouteContext(r.Context()).RoutePattern()
		if span := trace.SpanFromContext(r.Context()); span.IsRecording() {
			span.SetAttributes(semconv.URLPath(cmp.Or(r.Pattern, noRoute)))
		}
		m := q.of(requestKind{method(r), r.Pattern, version(r), cmp.Or(answer.Status(), http.StatusOK)})
		m.took.Record(time.Since(began).Seconds())
		m.received.Record(float64(body.read))
		m.sent.Record(float64(answer.BytesWritten()))
	})
}

// of returns the measurements of a kind.
func (q *requests) of(k requestKind) measurements {
	q.mu.RLock()
	m, known := q.kinds[k]
	q.mu.RUnlock()
	if known {
		return m
	}
	attributes := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(k.method), semconv.URLScheme("http"), semconv.HTTPResponseStatusCode(k.status),
		semconv.NetworkProtocolName("http"), semconv.NetworkProtocolVersion(k.version),
	}
	if k.route != "" {
		attributes = append(attributes, semconv.HTTPRoute(k.route))
	}
	m = measurements{q.took.Series(attributes...), q.received.Series(attributes...), q.sent.Series(attributes...)}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.kinds) < maxKinds {
		q.kinds[k] = m
	}
	return m
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

// countedBody counts the bytes that a handler has read.
type countedBody struct {
	io.ReadCloser

	read int64
}

// Read is that of an io.Reader.
func (b *countedBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.read += int64(n)
	return n, err
}
