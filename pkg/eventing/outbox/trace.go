package outbox

import (
	"context"
	"path"
	"slices"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// created returns events with the trace context in which each event was created. If the caller's
// trace is sampled, created records a span for each event, which is the parent of all later spans
// of the event. If an event already has a trace context other than the caller's, the event keeps
// that trace context.
func created(ctx context.Context, events []eventing.Event) []eventing.Event {
	recording := trace.SpanFromContext(ctx).IsRecording()
	callers := eventing.TraceParent(ctx)
	if callers == "" {
		return events
	}
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		if e.TraceParent != "" && e.TraceParent != callers {
			continue // the owner has chosen another trace context
		}
		e.TraceParent = callers
		if recording {
			within, span := otel.Tracer(scope).Start(ctx, "create", trace.WithSpanKind(trace.SpanKindProducer))
			span.SetAttributes(append(e.TraceAttributes(),
				semconv.MessagingOperationName("create"), semconv.MessagingOperationTypeCreate)...)
			e.TraceParent = eventing.TraceParent(within)
			span.End()
		}
	}
	return events
}

// startSend begins the span of one publish request. The span belongs to the trace of the request's
// first sampled event. It has a link to the "create" span of each sampled event, and that span
// describes the event. If no event is sampled, there is no span, because the request that wrote an
// event has decided whether the event is sampled.
func startSend(ctx context.Context, topic string, batch queue.Batch) (context.Context, trace.Span) {
	var links []trace.Link
	for _, e := range batch {
		if e.IsSampled() {
			links = append(links, trace.Link{SpanContext: eventing.SpanContext(e.TraceParent)})
		}
	}
	if len(links) == 0 {
		return ctx, noop.Span{}
	}
	name := path.Base(topic)
	ctx, span := otel.Tracer(scope).Start(trace.ContextWithRemoteSpanContext(ctx, links[0].SpanContext), "send "+name,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...))
	span.SetAttributes(semconv.MessagingSystemGCPPubSub, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(name), semconv.MessagingGCPPubSubMessageOrderingKey(batch[0].AggregateID))
	if len(batch) > 1 {
		span.SetAttributes(semconv.MessagingBatchMessageCount(len(batch)))
	}
	return ctx, span
}

// endSend ends the span of a publish request with its result.
func endSend(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(semconv.ErrorTypeKey.String(status.Code(err).String()))
		span.SetStatus(codes.Error, eventing.Reason(err.Error()))
	}
	span.End()
}
