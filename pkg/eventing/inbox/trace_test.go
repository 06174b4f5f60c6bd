package inbox

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
)

// recorded is the process's tracer for one test, which must not be parallel.
func recorded(t *testing.T) *tracetest.SpanRecorder {
	t.Helper()
	spans, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return spans
}

// sampled are deliveries of which the first has a trace that is not sampled, and each other
// one a sampled trace of its own.
func sampled(t *testing.T, n int) (batch []*delivery) {
	t.Helper()
	for i := range n {
		e := event("v", int64(i+1))
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, byte(i)}, SpanID: trace.SpanID{2, byte(i)}})
		if i > 0 {
			sc = sc.WithTraceFlags(trace.FlagsSampled)
		}
		e.TraceParent = eventing.TraceParent(trace.ContextWithSpanContext(t.Context(), sc))
		batch = append(batch, delivered(e))
	}
	return batch
}

// Each sampled event of a batch has a span in its own trace. The transaction's span is in the
// first of them, and the others are linked to it.
func TestABatchIsInTheTracesOfItsEvents(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans := recorded(t)
	c := &Consumer{store: store{consumer: "video.events.catalog"}}
	batch := sampled(t, 3)
	came := time.Now().Add(-time.Minute)
	batch[1].received = came
	tried := c.startAttempt(t.Context(), batch, time.Now())
	transaction := trace.SpanContextFromContext(tried.transaction(t.Context()))
	tried.committed()
	for _, d := range batch {
		tried.handled(d, Applied)
	}
	ended := spans.Ended()
	if len(ended) != 3 {
		t.Fatalf("%d spans, want one for the transaction and two for events", len(ended))
	}
	apply, first, second := ended[0], ended[1], ended[2]
	if apply.SpanContext().SpanID() != transaction.SpanID() || apply.Parent().SpanID() != first.SpanContext().SpanID() {
		t.Errorf("the transaction's span %s has the parent %s", apply.SpanContext().SpanID(), apply.Parent().SpanID())
	}
	for i, span := range []sdk.ReadOnlySpan{first, second} {
		creation := eventing.SpanContext(batch[i+1].event().TraceParent)
		if span.Name() != "process video.events.catalog" || span.SpanKind() != trace.SpanKindConsumer {
			t.Errorf("%s, %s", span.Name(), span.SpanKind())
		}
		if span.SpanContext().TraceID() != creation.TraceID() || span.Parent().SpanID() != creation.SpanID() ||
			span.Links()[0].SpanContext.SpanID() != creation.SpanID() {
			t.Errorf("version %d: parent %s, links %v, want the creation of its event", i+2, span.Parent().SpanID(), span.Links())
		}
	}
	if links := second.Links(); len(links) != 2 || links[1].SpanContext.SpanID() != transaction.SpanID() {
		t.Errorf("the second event's links: %v, want one to the transaction", links)
	}
	if !first.StartTime().Equal(came) {
		t.Errorf("begins at %s, want the time of its receipt %s", first.StartTime(), came)
	}
	if tried := c.startAttempt(t.Context(), batch[:1], time.Now()); tried != nil {
		t.Error("an event that is not sampled has spans")
	}
}

// A failed try has spans of its own, with the error; the next one begins when it does.
func TestAFailedTryIsInTheTrace(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans := recorded(t)
	c := &Consumer{store: store{consumer: "video.events.catalog"}}
	batch := sampled(t, 2)
	batch[1].received = time.Now().Add(-time.Minute)
	c.startAttempt(t.Context(), batch, time.Now()).failed(errors.New("no such column"), "failed")
	for _, span := range spans.Ended() {
		if span.Status().Description != "no such column" {
			t.Errorf("%s: %+v", span.Name(), span.Status())
		}
	}
	began := time.Now()
	again := c.startAttempt(t.Context(), batch, began)
	again.committed()
	again.handled(batch[1], Applied)
	ended := spans.Ended()
	if len(ended) != 4 || !ended[3].StartTime().Equal(began) {
		t.Errorf("%d spans of two tries; the last begins at %s, want %s", len(ended), ended[3].StartTime(), began)
	}
}

// The trace of an event that cannot be read, and so is not tried, ends with its dead letter.
func TestADeadLetterIsInTheTrace(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans, b := recorded(t), newBench(t)
	d := sampled(t, 2)[1]
	d.received, d.invalid = time.Now().Add(-time.Minute), errors.New("its payload is garbled")
	creation, came := eventing.SpanContext(d.event().TraceParent), d.received
	b.consumer(t).finish(t, d)
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans, want one", len(ended))
	}
	span := ended[0]
	if span.Parent().SpanID() != creation.SpanID() || !span.StartTime().Equal(came) ||
		span.Status().Description != "its payload is garbled" || !slices.Contains(span.Attributes(), attribute.String("outcome", "dead")) {
		t.Errorf("%s: parent %s, begins at %s, %+v, %v", span.Name(), span.Parent().SpanID(), span.StartTime(), span.Status(), span.Attributes())
	}
}
