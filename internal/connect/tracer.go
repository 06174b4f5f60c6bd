package connect

import (
	"context"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// tracer is otelpgx's with fewer spans: its own were two thirds of all, and the largest part of
// the cost of a trace. The metrics are those of otelpgx.
type tracer struct{ *otelpgx.Tracer }

// TraceBatchStart begins the span of a batch, with the texts of its statements.
func (t tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	ctx = t.Tracer.TraceBatchStart(ctx, conn, data)
	if span := trace.SpanFromContext(ctx); span.IsRecording() && data.Batch != nil {
		span.SetAttributes(semconv.DBQueryText(texts(data.Batch)))
	}
	return ctx
}

// maxTexts bounds the texts of a batch, in bytes: that of any text of a span, which the SDK would
// cut only after all of them were joined.
const maxTexts = 1 << 10

func texts(b *pgx.Batch) string {
	var all strings.Builder
	all.Grow(maxTexts)
	for i, q := range b.QueuedQueries {
		if i > 0 {
			all.WriteString("; ")
		}
		all.WriteString(q.SQL[:min(len(q.SQL), max(0, maxTexts-all.Len()))])
		if all.Len() >= maxTexts {
			return strings.ToValidUTF8(all.String(), "")
		}
	}
	return all.String()
}

// TraceBatchQuery makes a span of a statement that failed. One that succeeded has none: pgx
// reports its end only, so that the span would have no duration.
func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil {
		t.Tracer.TraceBatchQuery(ctx, conn, data)
	}
}

type acquiring struct{}

// TraceAcquireStart measures the wait for a connection, without a span: it is the time between
// two others. The connection that has to be made has a span.
func (t tracer) TraceAcquireStart(ctx context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireStartData) context.Context {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return t.Tracer.TraceAcquireStart(ctx, pool, data)
	}
	return context.WithValue(ctx, acquiring{}, t.Tracer.TraceAcquireStart(trace.ContextWithSpan(ctx, noop.Span{}), pool, data))
}

// TraceAcquireEnd ends the measurement.
func (t tracer) TraceAcquireEnd(ctx context.Context, pool *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	if within, ok := ctx.Value(acquiring{}).(context.Context); ok {
		ctx = within
	}
	t.Tracer.TraceAcquireEnd(ctx, pool, data)
}
