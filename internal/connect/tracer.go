package connect

import (
	"context"
	"errors"
	"regexp"
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

// tracer measures and traces the operations of database connections. It takes the place of otelpgx,
// whose histogram was half of the cost of all metrics. The names of otelpgx's metrics are kept. Spans
// and attributes are named by OpenTelemetry's conventions. An attribute costs as much as a third of
// a span, so db.namespace is left out, and so is db.operation.name where the span's name is BATCH or
// PREPARE.
//
// A statement of a batch that succeeded has no span, and neither has a wait for a connection. With
// otelpgx these were two thirds of all spans. countWaits counts the waits, and in a trace a wait
// shows as the time between two spans. A caller without a sampled span gets no spans.
//
// tracer does not measure COPY, which no service uses.
type tracer struct {
	spans                       trace.Tracer
	query, batch, prepare, dial kind
}

// kind has the metrics of one kind of operation.
type kind struct {
	took   *telemetry.Series
	failed metric.Int64Counter
	labels metric.MeasurementOption
}

// durations has the bounds of OpenTelemetry's conventions.
var durations = telemetry.NewDurations(scope, "db.client.operation.duration", "Duration of database client operations.",
	0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)

func newTracer(spans trace.TracerProvider) *tracer {
	failed := instrument.For(scope).Counter("db.client.operation.errors", "{error}", "Operations of database connections that failed")
	of := func(name string) kind {
		labels := attribute.NewSet(semconv.DBSystemNamePostgreSQL, attribute.String("pgx.operation.type", name))
		k := kind{durations.Of(labels), failed, metric.WithAttributeSet(labels)}
		instrument.Begin(failed, k.labels)
		return k
	}
	return &tracer{spans.Tracer(scope), of("query"), of("batch"), of("prepare"), of("connect")}
}

// operation is the context of an operation that is under way. pgx passes the context that a Start
// method returns to the End method. A context of its own costs one allocation, where two values in
// contexts would cost four.
type operation struct {
	context.Context //nolint:containedctx // operation is itself a context

	began time.Time
	span  trace.Span // nil if the operation is not traced
	// told is true if no further statement of the batch gets a span. Either the only statement of the
	// batch has its span already, or a statement has failed. pgx reports the error of a failed
	// statement also for the statements behind it.
	told bool
	// ended is true once the end of the operation was counted. pgx ends a batch that fails early
	// twice, and the second end must not count.
	ended bool
}

func begin(ctx context.Context) *operation { return &operation{Context: ctx, began: time.Now()} }

// sampled reports whether the caller of an operation is in a trace that is recorded.
func sampled(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// traceAs begins the span of o. The method end of the operation's kind ends the span.
func (t *tracer) traceAs(o *operation, name string, attributes ...attribute.KeyValue) {
	//nolint:spancheck // the span is ended by another method
	o.Context, o.span = t.spans.Start(o.Context, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(attributes, semconv.DBSystemNamePostgreSQL)...))
}

func (t *tracer) traceStatement(o *operation, sql string) {
	if name := verb(sql); name != "" {
		t.traceAs(o, name, semconv.DBQueryText(sql), semconv.DBOperationName(name))
	} else {
		t.traceAs(o, "SQL", semconv.DBQueryText(sql))
	}
}

// end ends the operation that ctx is. An error that a callback of a batch returns counts as a failure
// of the batch. So a callback must not return pgx.ErrNoRows for a row that may be missing.
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

// maxReason bounds the description of a failed span, which the SDK does not cut. A message of
// Postgres may quote a whole parameter.
const maxReason = 200

func endSpan(span trace.Span, err error) {
	if err != nil {
		reason := err.Error()
		reason = strings.Clone(reason[:min(len(reason), maxReason)]) // a part of it would keep the whole in memory
		span.SetStatus(codes.Error, strings.ToValidUTF8(reason, ""))
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok {
			span.SetAttributes(semconv.ErrorTypeKey.String(refused.Code), semconv.DBResponseStatusCode(refused.Code))
		} else {
			span.SetAttributes(semconv.ErrorType(err))
		}
	}
	span.End()
}

// TraceQueryStart implements pgx.QueryTracer.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.traceStatement(o, data.SQL)
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
	switch queries := data.Batch.QueuedQueries; {
	case !sampled(ctx):
	case len(queries) == 1:
		o.told = true
		t.traceStatement(o, queries[0].SQL)
	default:
		t.traceAs(o, "BATCH", semconv.DBOperationBatchSize(len(queries)), semconv.DBQueryText(texts(queries)))
	}
	return o
}

// TraceBatchQuery implements pgx.BatchTracer. It creates a span for the first statement that failed,
// if the batch has several. A statement that succeeded gets no span. pgx does not report when a
// statement began, so the span of a statement has no duration.
func (t *tracer) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if batch, ok := ctx.(*operation); ok && batch.span != nil && !batch.told && data.Err != nil {
		batch.told = true
		one := begin(ctx)
		t.traceStatement(one, data.SQL)
		endSpan(one.span, data.Err)
	}
}

// TraceBatchEnd implements pgx.BatchTracer.
func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	t.batch.end(ctx, data.Err)
}

// TracePrepareStart implements pgx.PrepareTracer.
func (t *tracer) TracePrepareStart(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareStartData) context.Context {
	o := begin(ctx)
	if sampled(ctx) {
		t.traceAs(o, "PREPARE", semconv.DBQueryText(data.SQL))
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
		t.traceAs(o, "connect")
	}
	return o
}

// TraceConnectEnd implements pgx.ConnectTracer.
func (t *tracer) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	t.dial.end(ctx, data.Err)
}

// firstWord matches the first word of a statement behind comments. It takes a comment to end at its
// first */, so a comment with a comment in it may give a wrong word. It does not match a text that
// begins with anything else.
var firstWord = regexp.MustCompile(`^(?:\s|--[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*([A-Za-z]{1,20})\b`)

// beginning bounds the part of a statement in which its first word is looked for.
const beginning = 1000

// verb returns the first word of a statement, such as SELECT, or "" if it is not at the beginning.
func verb(sql string) string {
	part := sql[:min(len(sql), beginning)]
	at := firstWord.FindStringSubmatchIndex(part)
	if len(at) == 0 || at[1] == beginning { // the word may be cut
		return ""
	}
	return strings.ToUpper(part[at[2]:at[3]])
}

// A batch's span shows the first maxTexts statements, and of each the first maxText bytes, which tell
// the statements apart.
const maxTexts, maxText = 10, 50

func texts(queries []*pgx.QueuedQuery) string {
	var all []string
	for _, q := range queries[:min(len(queries), maxTexts)] {
		all = append(all, q.SQL[:min(len(q.SQL), maxText)])
	}
	return strings.ToValidUTF8(strings.Join(all, "; "), "")
}
