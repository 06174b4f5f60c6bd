package connect

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"example.com/lockstep/internal/telemetry"
)

// scope names the measurements of this package.
const scope = "example.com/lockstep/internal/connect"

// measures measures the operations of connections, under the names that otelpgx has for them.
type measures struct {
	failed metric.Int64Counter

	query, batch, copied, connect, prepare, acquire operation
}

// operation has the series of a kind of operations.
type operation struct {
	took   *telemetry.Series
	failed metric.MeasurementOption
}

func newMeasures() *measures {
	failed, err := otel.Meter(scope).Int64Counter("db.client.operation.errors", metric.WithUnit("{operation}"),
		metric.WithDescription("The count of database client operation errors"))
	if err != nil {
		otel.Handle(err)
	}
	took := telemetry.NewHistogram(scope, "db.client.operation.duration", "s", "Duration of database client operations.",
		0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
	of := func(kind string) operation {
		attributes := []attribute.KeyValue{semconv.DBSystemNamePostgreSQL, attribute.String("pgx.operation.type", kind)}
		return operation{took.Series(attributes...), metric.WithAttributeSet(attribute.NewSet(attributes...))}
	}
	return &measures{
		failed: failed, query: of("query"), batch: of("batch"), copied: of("copy"), connect: of("connect"), prepare: of("prepare"),
		acquire: of("acquire"),
	}
}

// timed is the context of an operation, and knows its start.
type timed struct {
	context.Context

	began time.Time
}

type timedKey struct{}

// Value is that of a context.Context.
func (t *timed) Value(key any) any {
	if key == (timedKey{}) {
		return t
	}
	return t.Context.Value(key)
}

func begun(ctx context.Context) context.Context { return &timed{ctx, time.Now()} }

// ended measures the operation that began with ctx.
func (m *measures) ended(ctx context.Context, o *operation, err error) {
	if t, ok := ctx.Value(timedKey{}).(*timed); ok {
		o.took.Record(time.Since(t.began).Seconds())
	}
	m.noted(ctx, o, err)
}

// noted counts an error. That a row is not there is none.
func (m *measures) noted(ctx context.Context, o *operation, err error) {
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		m.failed.Add(ctx, 1, o.failed)
	}
}

// TraceQueryStart is that of a pgx.QueryTracer.
func (*measures) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return begun(ctx)
}

// TraceQueryEnd is that of a pgx.QueryTracer.
func (m *measures) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	m.ended(ctx, &m.query, data.Err)
}

// TraceBatchStart is that of a pgx.BatchTracer.
func (*measures) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return begun(ctx)
}

// TraceBatchQuery is that of a pgx.BatchTracer.
func (m *measures) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	m.noted(ctx, &m.batch, data.Err)
}

// TraceBatchEnd is that of a pgx.BatchTracer.
func (m *measures) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	m.ended(ctx, &m.batch, data.Err)
}

// TraceCopyFromStart is that of a pgx.CopyFromTracer.
func (*measures) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	return begun(ctx)
}

// TraceCopyFromEnd is that of a pgx.CopyFromTracer.
func (m *measures) TraceCopyFromEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceCopyFromEndData) {
	m.ended(ctx, &m.copied, data.Err)
}

// TracePrepareStart is that of a pgx.PrepareTracer.
func (*measures) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	return begun(ctx)
}

// TracePrepareEnd is that of a pgx.PrepareTracer.
func (m *measures) TracePrepareEnd(ctx context.Context, _ *pgx.Conn, data pgx.TracePrepareEndData) {
	m.ended(ctx, &m.prepare, data.Err)
}

// TraceConnectStart is that of a pgx.ConnectTracer.
func (*measures) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return begun(ctx)
}

// TraceConnectEnd is that of a pgx.ConnectTracer.
func (m *measures) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	m.ended(ctx, &m.connect, data.Err)
}

// TraceAcquireStart is that of a pgxpool.AcquireTracer.
func (*measures) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return begun(ctx)
}

// TraceAcquireEnd is that of a pgxpool.AcquireTracer.
func (m *measures) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	m.ended(ctx, &m.acquire, data.Err)
}
