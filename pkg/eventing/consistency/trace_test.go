package consistency

import (
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// The span of a wait is in its reader's trace, and is linked to the commit that ended it.
func TestAWaitIsLinkedToTheCommitThatEndsIt(t *testing.T) { //nolint:paralleltest // it sets the process's tracer
	spans, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	otel.SetTracerProvider(provider)
	defer otel.SetTracerProvider(before)
	var request trace.Span
	commit := func(n byte) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n}, TraceFlags: trace.FlagsSampled})
	}
	synctest.Test(t, func(t *testing.T) {
		reader, span := provider.Tracer("test").Start(t.Context(), "GET")
		request = span
		w, c := watched(t, 2, true)
		ended := w.begin(reader, at("v", "a", 2))
		unsampled := w.begin(t.Context(), at("v", "a", 2))
		synctest.Wait()
		for version := range byte(2) {
			c.set("a", int64(version+1), nil)
			w.Notify(trace.ContextWithSpanContext(t.Context(), commit(version+1)), at("v", "a", 0))
			synctest.Wait()
		}
		if r := <-ended; !r.reached || r.err != nil {
			t.Errorf("%+v", r)
		}
		<-unsampled
	})
	got := spans.Ended()
	if len(got) != 1 {
		t.Fatalf("%d spans, want that of the sampled reader", len(got))
	}
	if got[0].Name() != "wait" || got[0].Parent().SpanID() != request.SpanContext().SpanID() {
		t.Errorf("%s of %s", got[0].Name(), got[0].Parent().SpanID())
	}
	if links := got[0].Links(); len(links) != 1 || links[0].SpanContext.SpanID() != commit(2).SpanID() {
		t.Errorf("links %v, want one to the commit of version 2", links)
	}
}
