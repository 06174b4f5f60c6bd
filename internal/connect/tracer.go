package connect

import (
	"context"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"go.opentelemetry.io/otel"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/internal/telemetry"
)

// newTracer returns a tracer that measures all operations of a connection, and makes spans
// where traces are recorded: looking for a span alone takes longer than the measurement.
func newTracer() pgx.QueryTracer {
	measured := newMeasures()
	if !telemetry.RecordsTraces() {
		return measured
	}
	return multitracer.New(newSpans(otel.GetTracerProvider()), measured)
}

// spans is otelpgx with fewer spans: its own were two thirds of all, and the largest part of
// the cost of a trace. The wait for a connection has none, since it is the time between two
// others; the connection that has to be made has one.
type spans struct{ *otelpgx.Tracer }

func newSpans(provider trace.TracerProvider) spans {
	return spans{otelpgx.NewTracer(otelpgx.WithTracerProvider(provider), otelpgx.WithMeterProvider(metricnoop.NewMeterProvider()),
		otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableAcquireTracer())}
}

// TraceBatchStart begins the span of a batch, with the texts of its statements.
func (s spans) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	ctx = s.Tracer.TraceBatchStart(ctx, conn, data)
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() || data.Batch == nil {
		return ctx
	}
	texts := make([]string, len(data.Batch.QueuedQueries))
	for i, q := range data.Batch.QueuedQueries {
		texts[i] = q.SQL
	}
	span.SetAttributes(semconv.DBQueryText(strings.Join(texts, "; ")))
	return ctx
}

// TraceBatchQuery makes a span of a statement that failed. One that succeeded has none: pgx
// reports its end only, so that the span would have no duration.
func (s spans) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil {
		s.Tracer.TraceBatchQuery(ctx, conn, data)
	}
}
