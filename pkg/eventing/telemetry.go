package eventing

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// The buckets of histograms: OpenTelemetry's own are made for milliseconds.
var (
	// Seconds goes from a commit to an outage.
	Seconds = metric.WithExplicitBucketBoundaries(
		0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
	// Counts goes from a lone event to the largest batch.
	Counts = metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
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
