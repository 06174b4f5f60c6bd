package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// idsOnly is the tracer provider of a process that sends its traces nowhere. Its spans record
// nothing, but have ids for log lines and events. A span has the flags of its parent. So if the
// caller of this process samples a trace, the services that this process calls sample that trace,
// too.
type idsOnly struct{ embedded.TracerProvider }

// Tracer implements trace.TracerProvider.
func (idsOnly) Tracer(string, ...trace.TracerOption) trace.Tracer { return ids{} }

type ids struct{ embedded.Tracer }

// Start implements trace.Tracer.
func (ids) Start(ctx context.Context, _ string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	if config := trace.NewSpanStartConfig(options...); config.NewRoot() {
		parent = trace.SpanContext{}
	}
	c := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: parent.TraceFlags(), TraceState: parent.TraceState()}
	for !c.TraceID.IsValid() {
		binary.NativeEndian.PutUint64(c.TraceID[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(c.TraceID[8:], rand.Uint64())
	}
	for !c.SpanID.IsValid() {
		binary.NativeEndian.PutUint64(c.SpanID[:], rand.Uint64())
	}
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(c))
	return ctx, trace.SpanFromContext(ctx)
}
