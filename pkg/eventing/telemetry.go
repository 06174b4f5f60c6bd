package eventing

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// LogAttrs are the fields of every log line that concerns e.
func (e Event) LogAttrs() []any {
	return []any{
		"event_id", e.ID.String(),
		"event_type", e.Type,
		"ordering_key", e.AggregateID,
		"version", e.Version,
		"traceparent", e.TraceParent,
	}
}

// TraceParent is the W3C trace context of ctx, for Event.TraceParent; empty when
// nothing is traced.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[AttrTraceParent]
}

// SpanContext is the span that traceparent names; invalid when it names none.
func SpanContext(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{AttrTraceParent: traceparent})
	return trace.SpanContextFromContext(ctx)
}
