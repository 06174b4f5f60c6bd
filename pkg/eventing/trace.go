package eventing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// TraceParent returns the W3C trace context of ctx, for Event.TraceParent. The result is empty if
// ctx is not traced.
func TraceParent(ctx context.Context) string {
	var c carrier
	propagation.TraceContext{}.Inject(ctx, &c)
	return string(c)
}

// SpanContext returns the span that traceparent names, or an invalid SpanContext if traceparent
// names no span.
func SpanContext(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), (*carrier)(&traceparent))
	return trace.SpanContextFromContext(ctx)
}

// carrier is a propagation.TextMapCarrier that holds only a traceparent, without the allocations of
// a map.
type carrier string

func (c *carrier) Get(key string) string {
	if key == AttrTraceParent {
		return string(*c)
	}
	return ""
}

func (c *carrier) Set(key, value string) {
	if key == AttrTraceParent {
		*c = carrier(value)
	}
}

func (c *carrier) Keys() []string { return []string{AttrTraceParent} }

// InTrace returns ctx within the trace of the request that made the change, for log lines and calls
// about e. InTrace returns ctx unchanged if that request was not traced.
func (e Event) InTrace(ctx context.Context) context.Context {
	if sc := SpanContext(e.TraceParent); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}

// flagsAt is an index into a traceparent of W3C's version 00. The hex digit there is odd if the
// trace is sampled.
const flagsAt = 54

// IsSampled reports whether the trace of the request that made the change is sampled. If it is not,
// there is no use in making spans about e.
func (e Event) IsSampled() bool {
	// Most events are not sampled, so the flag is checked before the whole traceparent is parsed.
	return len(e.TraceParent) > flagsAt && strings.IndexByte("13579bdf", e.TraceParent[flagsAt]) >= 0 &&
		SpanContext(e.TraceParent).IsValid()
}

// TraceAttributes returns the attributes of each span that concerns e alone.
func (e Event) TraceAttributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		semconv.MessagingSystemGCPPubSub,
		semconv.MessagingGCPPubSubMessageOrderingKey(e.AggregateID),
		attribute.String(AttrEventID, e.ID.String()),
		attribute.String(AttrEventType, e.Type),
		attribute.String(AttrAggregateType, e.AggregateType),
		attribute.Int64(AttrVersion, e.Version),
	}
}
