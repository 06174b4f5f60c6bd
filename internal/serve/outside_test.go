package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"google.golang.org/grpc/metadata"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/internal/serve"
)

const (
	callersTrace = "0af7651916cd43dd8448eb211c80319c"
	traceparent  = "00-" + callersTrace + "-b7ad6b7169203331-01"
)

// recorded is the process's telemetry for one test, which must not be parallel.
func recorded(t *testing.T) *tracetest.SpanRecorder {
	t.Helper()
	spans, tracers, propagator := tracetest.NewSpanRecorder(), otel.GetTracerProvider(), otel.GetTextMapPropagator()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() {
		otel.SetTracerProvider(tracers)
		otel.SetTextMapPropagator(propagator)
	})
	return spans
}

// A caller from outside gets a trace of its own, which is linked to the caller's; a service of
// the system goes on with its own.
func TestTracesBeginWithCallersFromOutside(t *testing.T) { //nolint:paralleltest // it sets the process's telemetry
	spans := recorded(t)
	issuers := authtest.New(t)
	users, services, open := guarded(issuers.Callers), guarded(issuers.Callers), guarded(closed(t, true))
	services.rules["/test.Echo/Say"], open.rules["/test.Echo/Say"] = auth.Services, auth.Services
	for _, tc := range []struct {
		name      string
		of        *service
		caller    string
		continues bool
	}{
		{"user", users, "owner", false},
		{"service", services, "service", true},
		{"process on a laptop", open, "", true},
	} {
		header := http.Header{}
		if tc.caller != "" {
			header = issuers.Header(tc.caller)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", traceparent)
		for name := range header {
			ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(name), header.Get(name))
		}
		earlier := len(spans.Ended())
		if _, err := say(ctx, dial(t, tc.of.start(t)), "hello"); err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		check(t, tc.name, spans, earlier, tc.continues)
	}
}

// check looks at the span of the request that came after so many.
func check(t *testing.T, name string, spans *tracetest.SpanRecorder, earlier int, continues bool) {
	t.Helper()
	// The span of a call over gRPC ends after the caller has its answer.
	ended := spans.Ended()
	for tick, end := time.NewTicker(time.Millisecond), time.Now().Add(time.Minute); len(ended) == earlier && time.Now().Before(end); <-tick.C {
		ended = spans.Ended()
	}
	if len(ended) != earlier+1 {
		t.Fatalf("%s: %d spans of one request", name, len(ended)-earlier)
	}
	span := ended[earlier]
	if got := span.SpanContext().TraceID().String() == callersTrace; got != continues {
		t.Errorf("%s: in the caller's trace %t", name, got)
	}
	linked := len(span.Links()) == 1 && span.Links()[0].SpanContext.TraceID().String() == callersTrace
	if linked == continues || span.Parent().IsValid() != continues {
		t.Errorf("%s: parent %s, links %v", name, span.Parent().SpanID(), span.Links())
	}
}

func TestRESTIsForCallersFromOutside(t *testing.T) { //nolint:paralleltest // it sets the process's telemetry
	spans := recorded(t)
	s := guarded(auth.Open())
	r := httptest.NewRequest(http.MethodGet, "/v1/videos/s3cret?q=s3cret", nil)
	r.Header.Set("Traceparent", traceparent)
	s.rest.ServeHTTP(httptest.NewRecorder(), r)
	check(t, "REST", spans, 0, false)
	for _, a := range spans.Ended()[0].Attributes() {
		if strings.Contains(a.Value.String(), "s3cret") {
			t.Errorf("the span has the request's own text: %s=%s", a.Key, a.Value.String())
		}
	}
}

// Spans cost money, and a request that is refused, has no route or is for everybody costs its sender nothing. An
// admitted request has a span, whatever the others do, and so has one that fails by the service's fault.
func TestStrangersLeaveFewSpans(t *testing.T) { //nolint:paralleltest // it sets the process's telemetry
	spans, issuers := recorded(t), authtest.New(t)
	s := limited(issuers.Callers, io.Discard, serve.Options{Origins: serve.Origins{"https://app.example"}})
	s.rules["GET /openapi.json"] = auth.Public
	s.rest.Get("/openapi.json", func(http.ResponseWriter, *http.Request) {})
	s.rules["GET /broken"] = auth.Public
	s.rest.Get("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	began := time.Now()
	const requests = 60
	for range requests {
		for _, path := range []string{"/nowhere", "/openapi.json", "/v1/videos/1"} {
			s.rest.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		r := httptest.NewRequest(http.MethodGet, "/v1/videos/1", nil)
		r.Header = issuers.Header("owner")
		s.rest.ServeHTTP(httptest.NewRecorder(), r)
		preflight := httptest.NewRequest(http.MethodOptions, "/v1/videos/1", nil)
		preflight.Header = http.Header{"Origin": {"https://app.example"}, "Access-Control-Request-Method": {"GET"}}
		s.rest.ServeHTTP(httptest.NewRecorder(), preflight)
	}
	s.rest.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/broken", nil))
	strangers, callers, faults := 0, 0, 0
	for _, span := range spans.Ended() {
		switch {
		case slices.Contains(span.Attributes(), semconv.HTTPResponseStatusCode(http.StatusInternalServerError)):
			faults++
		case slices.Contains(span.Attributes(), semconv.HTTPResponseStatusCode(http.StatusOK)) && strings.Contains(span.Name(), "{id}"):
			callers++
		case slices.Contains(span.Attributes(), semconv.HTTPResponseStatusCode(http.StatusUnauthorized)) && span.Name() != "GET /v1/videos/{id}":
			t.Errorf("the span of a refused request is %q, want that of its route", span.Name())
		default:
			strangers++
		}
	}
	if faults != 1 {
		t.Errorf("%d spans of a fault, want 1", faults)
	}
	if most := 50 + 10*int(time.Since(began)/time.Second+1); strangers < 50 || strangers > most || callers != requests {
		t.Errorf("%d spans of strangers and %d of callers, want 50 to %d and %d", strangers, callers, most, requests)
	}
}

// A span has the route in place of the path, a part of the user agent, and an error where the fault
// is the service's. A probe has none.
func TestSpansOfRequestsAreDescribed(t *testing.T) { //nolint:paralleltest // it sets the process's telemetry
	spans := recorded(t)
	s := newService(io.Discard)
	s.rest.Get("/v1/things/{id}", func(w http.ResponseWriter, r *http.Request) {
		switch chi.URLParam(r, "id") {
		case "half":
			_, _ = io.WriteString(w, "half of an answer")
			panic("broken")
		case "broken":
			panic("broken")
		}
	})
	s.rules["GET /v1/things/{id}"] = auth.Public
	for _, path := range []string{"/healthz", "/v1/things/1", "/v1/things/broken", "/v1/things/half", "/nowhere/1"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("User-Agent", strings.Repeat("x", 1000))
		func() {
			defer func() { _ = recover() }() // of the connection that is broken off
			s.rest.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
	var got []string
	for _, span := range spans.Ended() {
		of := map[attribute.Key]string{}
		for _, a := range span.Attributes() {
			of[a.Key] = a.Value.String()
		}
		got = append(got, fmt.Sprintf("%s %s %s %s %s %s %d", span.SpanKind(), span.Name(), of["http.route"], of["url.path"],
			of["http.response.status_code"], span.Status().Code, len(of["user_agent.original"])))
	}
	want := []string{
		"server GET /v1/things/{id} /v1/things/{id} /v1/things/{id} 200 Unset 200",
		"server GET /v1/things/{id} /v1/things/{id} /v1/things/{id} 500 Error 200",
		"server GET /v1/things/{id} /v1/things/{id} /v1/things/{id} 500 Error 200",
		"server GET (no route)  (no route) 404 Unset 200",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}
