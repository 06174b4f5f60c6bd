package connect

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/internal/telemetry"
	"example.com/lockstep/pkg/eventing/instrument"
)

const scope = "example.com/lockstep/internal/connect"

// tracer measures and traces the operations of database connections by OpenTelemetry's
// conventions. It takes the place of otelpgx, whose histogram was half of the cost of all metrics.
// Of the spans of otelpgx two thirds are left out here, because they were the largest part of the
// cost of a trace: those of the statements of a batch that succeeded, and those of waits for a
// connection. countWaits counts these waits, and in a trace a wait shows as the time between two
// spans.
//
// A caller without a sampled span gets no spans.
type tracer struct {
	spans                                 trace.Tracer
	query, batch, copied, prepare, dialed kind
}

// kind has the metrics of one kind of operation.
type kind struct {
	took   *telemetry.Series
	failed metric.Int64Counter
	labels metric.MeasurementOption
}

func newTracer(spans trace.TracerProvider) *tracer {
	// The bounds are those of OpenTelemetry's conventions.
	took := telemetry.NewDurations(scope, "db.client.operation.duration", "Duration of database client operations.",
		0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
	failed := instrument.For(scope).Counter("db.client.operation.errors", "{error}", "Operations of database connections that failed")
	of := func(name string) kind {
		labels := attribute.NewSet(semconv.DBSystemNamePostgreSQL, attribute.String("pgx.operation.type", name))
		k := kind{took.Of(labels), failed, metric.WithAttributeSet(labels)}
		instrument.Begin(failed, k.labels)
		return k
	}
	return &tracer{
		spans: spans.Tracer(scope),
		query: of("query"), batch: of("batch"), copied: of("copy"), prepare: of("prepare"), dialed: of("connect"),
	}
}

// operation is the context of an operation that is under way. pgx passes the context that a Start
// method returns to the End method. A context of its own costs one allocation, where two values in
// contexts would cost four.
type operation struct {
	context.Context //nolint:containedctx // it is a context

	began time.Time
	span  trace.Span // nil if the operation is not traced
	ended bool       // pgx ends a batch that fails early twice
}

// sampled reports whether the operation belongs to a trace that is recorded.
func sampled(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

func begin(ctx context.Context) *operation { return &operation{Context: ctx, began: time.Now()} }

// trace begins the span of o. The method end of the operation's kind ends the span.
func (t *tracer) trace(o *operation, name string, attributes ...attribute.KeyValue) {
	//nolint:spancheck // see above
	o.Context, o.span = t.spans.Start(o.Context, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(attributes, semconv.DBSystemNamePostgreSQL)...))
}

func (k kind) end(ctx context.Context, err error) {
	o, ok := ctx.(*operation)
	if !ok || o.ended {
		return
	}
	o.ended = true
	k.took.Record(time.Since(o.began))
	if err != nil {
		k.failed.Add(ctx, 1, k.labels)
	}
	if o.span != nil {
		endSpan(o.span, err)
	}
}

func endSpan(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			span.SetAttributes(semconv.DBResponseStatusCode(refused.Code))
		}
	}
	span.End()
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.trace(o, verb(data.SQL), statement(data.SQL)...)
	}
	return o
}

// TraceQueryEnd implements pgx.QueryTracer.
func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	t.query.end(ctx, data.Err)
}

// TraceBatchStart implements pgx.BatchTracer. The span of a batch has the texts of its statements.
func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) && data.Batch != nil {
		t.trace(o, "BATCH", semconv.DBOperationBatchSize(data.Batch.Len()), semconv.DBQueryText(texts(data.Batch)))
	}
	return o
}

// TraceBatchQuery implements pgx.BatchTracer. It creates a span for a statement that failed. A
// statement that succeeded gets no span. pgx reports only the end of such a statement, so its span
// would have no duration.
func (t *tracer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil && sampled(ctx) {
		one := begin(ctx)
		t.trace(one, verb(data.SQL), statement(data.SQL)...)
		endSpan(one.span, data.Err)
	}
}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	t.batch.end(ctx, data.Err)
}

// TraceCopyFromStart implements pgx.CopyFromTracer.
func (t *tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.trace(o, "COPY", semconv.DBCollectionName(data.TableName.Sanitize()))
	}
	return o
}

// TraceCopyFromEnd implements pgx.CopyFromTracer.
func (t *tracer) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	t.copied.end(ctx, data.Err)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (t *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.trace(o, "PREPARE", semconv.DBQueryText(data.SQL))
	}
	return o
}

// TracePrepareEnd implements pgx.PrepareTracer.
func (t *tracer) TracePrepareEnd(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	t.prepare.end(ctx, data.Err)
}

// TraceConnectStart implements pgx.ConnectTracer.
func (t *tracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.trace(o, "connect")
	}
	return o
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (t *tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	t.dialed.end(ctx, data.Err)
}

func statement(sql string) []attribute.KeyValue {
	return []attribute.KeyValue{semconv.DBQueryText(sql), semconv.DBOperationName(verb(sql))}
}

// verb returns the first word of a statement, such as SELECT.
func verb(sql string) string {
	for word := range strings.FieldsSeq(sql) {
		return strings.ToUpper(word)
	}
	return "UNKNOWN"
}

// maxTexts and maxText bound the text of a batch's span. The text shows the first maxTexts
// statements, and the first maxText bytes of each of them. The beginning of a statement tells which
// statement it is.
const maxTexts, maxText = 10, 50

func texts(b *pgx.Batch) string {
	var all []string
	for _, q := range b.QueuedQueries[:min(len(b.QueuedQueries), maxTexts)] {
		all = append(all, q.SQL[:min(len(q.SQL), maxText)])
	}
	return strings.ToValidUTF8(strings.Join(all, "; "), "")
}
