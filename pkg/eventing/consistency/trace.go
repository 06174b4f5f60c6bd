package consistency

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// startWait begins the span of a wait for the positions wanted, if the reader's trace is sampled.
func startWait(ctx context.Context, wanted []Position) trace.Span {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return noop.Span{}
	}
	_, span := otel.Tracer("example.com/lockstep/pkg/eventing/consistency").Start(ctx, "wait",
		trace.WithAttributes(attribute.Int("aggregates", len(wanted))))
	return span
}

// endWait ends the span of a wait, with links to the commits that ended it.
func endWait(span trace.Span, reached bool, commits []trace.Link) {
	for _, commit := range commits {
		span.AddLink(commit)
	}
	span.SetAttributes(attribute.Bool("reached", reached))
	span.End()
}
