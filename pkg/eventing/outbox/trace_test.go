package outbox

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

// recorded is the process's tracer for one test, which must not be parallel.
func recorded(t *testing.T, sampler sdk.Sampler) *tracetest.SpanRecorder {
	t.Helper()
	spans, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithSampler(sampler)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return spans
}

// A request of several traces is in the first that is sampled, and is linked to the events of
// all that are.
func TestAPublishIsInTheTraceOfItsEvents(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans := recorded(t, sdk.AlwaysSample())
	within := func(sampled bool) context.Context {
		sc := trace.SpanContextFromContext(traceOf(t, otel.Tracer("test")))
		return trace.ContextWithSpanContext(t.Context(), sc.WithTraceFlags(sc.TraceFlags().WithSampled(sampled)))
	}
	var batch queue.Batch
	for v, sampled := range []bool{false, true, true} {
		e := event("v", int64(v+1))
		e.TraceParent = eventing.TraceParent(within(sampled))
		batch = append(batch, queue.Event{Event: e})
	}
	earlier := len(spans.Ended())
	_, none := startSend(t.Context(), topic, batch[:1])
	endSend(none, nil)
	if n := len(spans.Ended()) - earlier; n != 0 {
		t.Errorf("%d spans of an event that is not sampled", n)
	}
	_, span := startSend(t.Context(), topic, batch)
	endSend(span, errors.New("refused"))
	got := spans.Ended()[earlier]
	first, second := eventing.SpanContext(batch[1].TraceParent), eventing.SpanContext(batch[2].TraceParent)
	if got.Name() != "send video.events" || got.SpanKind() != trace.SpanKindClient || got.Status().Description != "refused" {
		t.Errorf("%s, %s, %+v", got.Name(), got.SpanKind(), got.Status())
	}
	if got.Parent().SpanID() != first.SpanID() || got.SpanContext().TraceID() != first.TraceID() {
		t.Errorf("its parent is %s, want the creation of version 2", got.Parent().SpanID())
	}
	var links []string
	for _, l := range got.Links() {
		links = append(links, l.SpanContext.SpanID().String())
	}
	if diff := cmp.Diff([]string{first.SpanID().String(), second.SpanID().String()}, links); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

// traceOf is the context of a span in a trace of its own.
func traceOf(t *testing.T, tracer trace.Tracer) context.Context {
	t.Helper()
	ctx, span := tracer.Start(t.Context(), "request")
	span.End()
	return ctx
}

// An event is created in a span of its own if its request is sampled, and else carries the
// request's context. A context that its owner has chosen stays.
func TestAnEventCarriesItsCreation(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans := recorded(t, sdk.ParentBased(sdk.AlwaysSample()))
	ctx, request := otel.Tracer("test").Start(t.Context(), "request")
	own := event("v", 2)
	own.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	chosen := event("v", 1)
	chosen.TraceParent = eventing.TraceParent(ctx) // as an owner of its own accord would
	given := []eventing.Event{event("v", 1), own, chosen}
	events := created(ctx, given)
	if given[0].TraceParent != "" {
		t.Error("the caller's events were changed")
	}
	if n := len(spans.Ended()); n != 2 || events[1].TraceParent != own.TraceParent {
		t.Errorf("%d spans for two events, and %q for the one with its own", n, events[1].TraceParent)
	}
	for i, span := range spans.Ended() {
		if span.Name() != "create" || span.SpanKind() != trace.SpanKindProducer || span.Parent().SpanID() != request.SpanContext().SpanID() {
			t.Errorf("%s, %s, of %s", span.Name(), span.SpanKind(), span.Parent().SpanID())
		}
		if got := eventing.SpanContext(events[2*i].TraceParent); got.SpanID() != span.SpanContext().SpanID() || !got.IsSampled() {
			t.Errorf("event %d carries %s, want its own span", 2*i, events[2*i].TraceParent)
		}
	}
	request.End()

	unsampled := recorded(t, sdk.NeverSample())
	ctx = traceOf(t, otel.Tracer("test"))
	if got := created(ctx, []eventing.Event{event("v", 1)})[0].TraceParent; got != eventing.TraceParent(ctx) || len(unsampled.Ended()) > 0 {
		t.Errorf("%q in a request that is not sampled, with %d spans", got, len(unsampled.Ended()))
	}
	if got := created(t.Context(), []eventing.Event{event("v", 1)})[0].TraceParent; got != "" {
		t.Errorf("%q without a request", got)
	}
}
