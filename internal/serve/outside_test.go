package serve_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
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
