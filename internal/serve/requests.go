package serve

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"example.com/lockstep/internal/telemetry"
)

const scope = "example.com/lockstep/internal/serve"

// requests traces and measures requests by OpenTelemetry's conventions. It takes the place of
// otelhttp, which takes four times as long, because otelhttp builds the attributes of each request
// again. The attributes of otelhttp also include the Host header, in which a client may send any
// text.
type requests struct {
	tracer trace.Tracer
	kinds  sync.Map // of series, by requestKind
	// atNoCost limits the spans of requests that cost their clients nothing.
	atNoCost *rate.Limiter
}

// series has the attributes of a kind of requests, and their times.
type series struct {
	attributes attribute.Set
	took       *telemetry.Series
}

// requestKind has the parts of a request that telemetry shows. Each part has few values.
type requestKind struct {
	method, route, version string
	status                 int
}

// durations has the bounds of OpenTelemetry's conventions.
var durations = telemetry.NewDurations(scope, "http.server.request.duration", "Duration of HTTP server requests.",
	0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

func newRequests() *requests { return &requests{tracer: otel.Tracer(scope), atNoCost: newFaults()} }

// measured begins a trace with each request, and measures the request. It does not continue the
// caller's trace but links to it, because REST callers are always outside of the system. The
// span has the route in place of the path, because the path's parameters are ids of users. Of the
// requests that cost their clients nothing, a limited number has a span: a span that does not end is
// not exported.
func (q *requests) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isProbe(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		began, answer, atNoCost := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor), new(bool)
		ctx := context.WithValue(r.Context(), freeKey{}, atNoCost)
		ctx, span := q.start(ctx, r)
		status := http.StatusInternalServerError // the status if a panic breaks off the answer
		defer func() {
			if refused := answer.Status(); refused == http.StatusTooManyRequests {
				status = refused
			}
			kind := q.kind(requestKind{method(r), chi.RouteContext(ctx).RoutePattern(), version(r), status})
			kind.took.Record(time.Since(began))
			if span.IsRecording() && (!*atNoCost || status >= http.StatusInternalServerError || q.atNoCost.Allow()) {
				describe(span, r, kind.attributes, status)
				span.End()
			}
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
		status = cmp.Or(answer.Status(), http.StatusOK)
	})
}

func (q *requests) start(ctx context.Context, r *http.Request) (context.Context, trace.Span) {
	//nolint:spancheck // measured ends the span
	return q.tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer), callersTrace(r))
}

// callersTrace links a span to the caller's span, if the request names one.
func callersTrace(r *http.Request) trace.SpanStartOption {
	theirs := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if at := trace.SpanContextFromContext(theirs); at.IsValid() {
		return trace.WithLinks(trace.Link{SpanContext: at})
	}
	return trace.WithLinks()
}

func describe(span trace.Span, r *http.Request, kind attribute.Set, status int) {
	route, known := kind.Value(semconv.HTTPRouteKey)
	path := noRoute
	if known {
		path = route.AsString()
	}
	span.SetName(method(r) + " " + path)
	agent := strings.Clone(printable(r.UserAgent())) // a substring would keep 32 KiB in memory until the span has left
	span.SetAttributes(append(kind.ToSlice(), semconv.URLPath(path), semconv.UserAgentOriginal(agent))...)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

func (q *requests) kind(k requestKind) series {
	known, ok := q.kinds.Load(k)
	if !ok {
		attributes := []attribute.KeyValue{
			semconv.HTTPRequestMethodKey.String(k.method), semconv.URLScheme("http"), semconv.HTTPResponseStatusCode(k.status),
			semconv.NetworkProtocolVersion(k.version),
		}
		if k.route != "" {
			attributes = append(attributes, semconv.HTTPRoute(k.route))
		}
		if k.status >= http.StatusInternalServerError {
			attributes = append(attributes, semconv.ErrorTypeKey.String(strconv.Itoa(k.status)))
		}
		set := attribute.NewSet(attributes...)
		known, _ = q.kinds.LoadOrStore(k, series{set, durations.Of(set)})
	}
	return known.(series)
}

// version returns the HTTP version of r as one of three values, whatever version a client sends.
func version(r *http.Request) string {
	switch {
	case r.ProtoMajor >= 2:
		return "2"
	case r.ProtoAtLeast(1, 1):
		return "1.1"
	}
	return "1.0"
}
