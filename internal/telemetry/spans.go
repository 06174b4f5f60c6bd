package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
)

// maxAttributeBytes bounds each text of a span. A client chooses some of them, such as its
// user agent of up to 64 KiB. The SDK lets 2,048 spans wait for the collector before it drops
// further ones, beside the 512 of the request under way: that is a few MiB.
const maxAttributeBytes = 1 << 10

// limits are the standard variables', with a bound where they set none.
func limits() trace.SpanLimits {
	l := trace.NewSpanLimits()
	if l.AttributeValueLengthLimit < 0 {
		l.AttributeValueLengthLimit = maxAttributeBytes
	}
	return l
}

// cloned is a queue of spans that keeps nothing of the texts that were cut off at limit. The
// SDK cuts by slicing, and a slice keeps the whole text in memory.
type cloned struct {
	trace.SpanProcessor

	limit int
}

// OnStart sees the attributes that a request has brought.
func (c cloned) OnStart(ctx context.Context, span trace.ReadWriteSpan) {
	for _, a := range span.Attributes() {
		if a.Value.Type() == attribute.STRING && len(a.Value.AsString()) >= c.limit {
			span.SetAttributes(a.Key.String(strings.Clone(a.Value.AsString())))
		}
	}
	c.SpanProcessor.OnStart(ctx, span)
}
