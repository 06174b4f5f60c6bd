package telemetry_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/porttest"
	"example.com/lockstep/internal/telemetry"
)

// The root of a trace decides by the standard variable, and its parts follow it.
func TestTheSamplerIsTheStandardOne(t *testing.T) {
	for sampler, want := range map[string]struct{ root, child bool }{
		"":                         {true, true},
		"parentbased_always_on":    {true, true},
		"parentbased_always_off":   {false, true},
		"parentbased_traceidratio": {false, true},
		"always_off":               {false, false},
	} {
		t.Run(sampler, func(t *testing.T) {
			defer setup(t, map[string]string{
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://COLLECTOR", "OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "0",
			})()
			sampled := func(ctx context.Context) bool {
				_, span := otel.Tracer("test").Start(ctx, "work")
				defer span.End()
				return span.SpanContext().IsSampled()
			}
			parent := trace.SpanContextFromContext(inSpan(t))
			if got := sampled(t.Context()); got != want.root {
				t.Errorf("root sampled: %t", got)
			}
			if got := sampled(trace.ContextWithRemoteSpanContext(t.Context(), parent)); got != want.child {
				t.Errorf("child of a sampled span sampled: %t", got)
			}
		})
	}
}

// Without an endpoint spans have ids and record nothing. A child is in the trace of its parent,
// with the parent's flags; a root is in one of its own, also below another span.
func TestSpansWithoutAnEndpointHaveIDs(t *testing.T) {
	defer setup(t, nil)()
	tracer, parent := otel.Tracer("test"), trace.SpanContextFromContext(inSpan(t))
	for name, tc := range map[string]struct {
		ctx            context.Context //nolint:containedctx // a case of the table
		options        []trace.SpanStartOption
		child, sampled bool
	}{
		"no parent":      {t.Context(), nil, false, false},
		"remote parent":  {trace.ContextWithRemoteSpanContext(t.Context(), parent), nil, true, true},
		"root in a span": {inSpan(t), []trace.SpanStartOption{trace.WithNewRoot()}, false, false},
	} {
		ctx, span := tracer.Start(tc.ctx, "work", tc.options...)
		_, second := tracer.Start(ctx, "part")
		of, inner := span.SpanContext(), second.SpanContext()
		if !of.IsValid() || of.IsRemote() || span.IsRecording() || !of.Equal(trace.SpanContextFromContext(ctx)) {
			t.Errorf("%s: %+v, recording %t", name, of, span.IsRecording())
		}
		if (of.TraceID() == parent.TraceID()) != tc.child || of.IsSampled() != tc.sampled || of.SpanID() == parent.SpanID() {
			t.Errorf("%s: %+v below %+v", name, of, parent)
		}
		if inner.TraceID() != of.TraceID() || inner.SpanID() == of.SpanID() || inner.IsSampled() != tc.sampled {
			t.Errorf("%s: %+v below %+v", name, inner, of)
		}
		span.End()
		second.End()
	}
}

// asked are the headers that a propagator has read.
type asked map[string]bool

func (a asked) Get(name string) string {
	a[name] = true
	return http.Header{"traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "tracestate": {"a=b"}}[name][0]
}
func (asked) Set(string, string) {}
func (asked) Keys() []string     { return nil }

func TestTextsOfSpansAreBounded(t *testing.T) {
	for limit, want := range map[string]int{"": 1 << 10, "2000": 2000} {
		t.Run(limit, func(t *testing.T) {
			defer setup(t, map[string]string{
				"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://COLLECTOR", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": limit,
			})()
			_, span := otel.Tracer("test").Start(t.Context(), "work")
			defer span.End()
			span.SetAttributes(attribute.String("text", strings.Repeat("a", 5000)))
			if got := span.(sdktrace.ReadOnlySpan).Attributes(); len(got) != 1 || len(got[0].Value.AsString()) != want {
				t.Errorf("%d attributes of a span, want one of %d bytes", len(got), want)
			}
		})
	}
}

// To read a tracestate of 30 KiB may take a millisecond, before the request's caller is known.
func TestTheTracestateIsNotRead(t *testing.T) {
	shutdown := setup(t, nil)
	defer shutdown()
	of := asked{}
	at := trace.SpanContextFromContext(otel.GetTextMapPropagator().Extract(t.Context(), of))
	if !at.IsRemote() || !at.IsSampled() || at.TraceState().Len() > 0 || of["tracestate"] {
		t.Errorf("%+v of the headers %v, want the traceparent alone", at, of)
	}
}

// hanging is the address of a collector that answers nothing until the test ends.
func hanging(t *testing.T) string {
	t.Helper()
	lis := porttest.Listen(t)
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return s.Context().Err()
	}))
	go func() { _ = collector.Serve(lis) }()
	t.Cleanup(collector.Stop)
	return lis.Addr().String()
}

// The last flush ends with its context.
func TestACollectorThatHangsHoldsUpNoEnd(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://"+hanging(t))
	stop, err := telemetry.Setup(t.Context(), "video", "v1")
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), "work")
	span.End()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := stop(ctx); err == nil {
		t.Error("everything was sent to a collector that hangs")
	}
}
