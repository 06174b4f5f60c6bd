package inbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
)

// attempt has the spans of one try to apply a batch. Each event whose trace is sampled has a span
// in that trace. The transaction of the batch has a span in the first of these traces. If no trace
// is sampled, the attempt is nil.
type attempt struct {
	process map[*delivery]trace.Span
	apply   trace.Span
}

func (c *Consumer) startAttempt(ctx context.Context, batch []*delivery, began time.Time) (a *attempt) {
	for _, d := range batch {
		if !d.event().IsSampled() {
			continue
		}
		within, span := c.startProcess(ctx, d, began)
		if a == nil {
			a = &attempt{process: map[*delivery]trace.Span{}}
			_, a.apply = otel.Tracer(scope).Start(within, "apply", trace.WithTimestamp(began),
				trace.WithAttributes(semconv.MessagingBatchMessageCount(len(batch))))
		} else {
			span.AddLink(trace.Link{SpanContext: a.apply.SpanContext()})
		}
		a.process[d] = span
	}
	return a
}

// startProcess begins the span of d. The span starts when d was received or, if d has been tried
// before, at the time began.
func (c *Consumer) startProcess(ctx context.Context, d *delivery, began time.Time) (context.Context, trace.Span) {
	e := d.event()
	start := began
	if !d.received.IsZero() {
		start, d.received = d.received, time.Time{}
	}
	attributes := append(e.TraceAttributes(),
		semconv.MessagingOperationName("process"), semconv.MessagingOperationTypeProcess, semconv.MessagingMessageID(d.message().ID),
		semconv.MessagingDestinationName(c.store.consumer), semconv.MessagingDestinationSubscriptionName(c.store.consumer))
	if n := d.attempt(); n > 0 { // otherwise the broker does not count
		attributes = append(attributes, semconv.MessagingGCPPubSubMessageDeliveryAttempt(n))
	}
	creation := eventing.SpanContext(e.TraceParent)
	ctx, span := otel.Tracer(scope).Start(trace.ContextWithRemoteSpanContext(ctx, creation), "process "+c.store.consumer,
		trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(trace.Link{SpanContext: creation}))
	span.SetAttributes(attributes...)
	return ctx, span
}

// traceDeadLetter records the end of d, whose dead letter is written. An event that cannot be read was
// never tried, and has no other span here.
func (c *Consumer) traceDeadLetter(ctx context.Context, d *delivery, reason error) {
	if !d.event().IsSampled() {
		return
	}
	_, span := c.startProcess(ctx, d, time.Now())
	span.SetAttributes(attribute.String("outcome", "dead"), semconv.ErrorTypeKey.String("dead"))
	span.SetStatus(codes.Error, eventing.Reason(reason.Error()))
	span.End()
}

// transaction returns ctx with the transaction's span.
func (a *attempt) transaction(ctx context.Context) context.Context {
	if a == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, a.apply)
}

// committed ends the transaction's span.
func (a *attempt) committed() {
	if a != nil {
		a.apply.End()
	}
}

// handled ends the span of d, whose outcome is o.
func (a *attempt) handled(d *delivery, o Outcome) {
	if a == nil || a.process[d] == nil {
		return
	}
	a.process[d].SetAttributes(attribute.String("outcome", o.String()))
	a.process[d].End()
}

// failed ends all spans with the error of the transaction.
func (a *attempt) failed(err error, class string) {
	if a == nil {
		return
	}
	reason := eventing.Reason(err.Error())
	a.apply.SetStatus(codes.Error, reason)
	a.apply.End()
	for _, span := range a.process {
		span.SetAttributes(semconv.ErrorTypeKey.String(class))
		span.SetStatus(codes.Error, reason)
		span.End()
	}
}
