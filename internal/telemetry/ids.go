package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// idsOnly is the provider of a process that no trace leaves. Its spans record nothing and have
// ids, for log lines and events. Their flags are the parent's, so that a service of the system
// that samples a trace has it sampled by those that this one calls.
type idsOnly struct{ embedded.TracerProvider }

// Tracer is that of a trace.TracerProvider.
func (idsOnly) Tracer(string, ...trace.TracerOption) trace.Tracer { return ids{} }

type ids struct{ embedded.Tracer }

// Start is that of a trace.Tracer.
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
