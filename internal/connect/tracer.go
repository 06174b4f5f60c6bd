package connect

import (
	"context"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing/instrument"
)

// tracer is the tracer of otelpgx with fewer spans. The spans of otelpgx were two thirds of all
// spans, and the largest part of the cost of a trace. tracer keeps otelpgx's metrics of operations.
type tracer struct{ *otelpgx.Tracer }

// newTracer returns a tracer that does not trace waits for a connection. countWaits counts these
// waits, and in a trace a wait shows as the time between two spans. A histogram of all waits would
// cost as much as the histogram of all statements.
func newTracer(more ...otelpgx.Option) tracer {
	return tracer{otelpgx.NewTracer(append(more, otelpgx.WithDisableConnectionDetailsInAttributes(), otelpgx.WithDisableAcquireTracer())...)}
}

// countWaits reports the sums that pgxpool keeps about the waits for its connections, as metrics.
// All pools of a process are reported together.
func countWaits(pool *pgxpool.Pool) {
	meter := instrument.For("example.com/lockstep/internal/connect")
	acquires := meter.Sum("database.pool.acquires", "{acquire}", "Waits for a database connection that ended with one")
	canceled := meter.Sum("database.pool.canceled_acquires", "{acquire}",
		"Waits that were given up, because the time of the request or the loop was over; a refused connection is not counted")
	wait := meter.Sum("database.pool.wait", "s", "Time of all waits that ended with a connection")
	meter.Observe(func(_ context.Context, o metric.Observer) error {
		s := pool.Stat()
		o.ObserveFloat64(acquires, float64(s.AcquireCount()))
		o.ObserveFloat64(canceled, float64(s.CanceledAcquireCount()))
		o.ObserveFloat64(wait, s.AcquireDuration().Seconds())
		return nil
	}, acquires, canceled, wait)
}

// TraceBatchStart begins the span of a batch, with the texts of its statements.
func (t tracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	ctx = t.Tracer.TraceBatchStart(ctx, conn, data)
	if span := trace.SpanFromContext(ctx); span.IsRecording() && data.Batch != nil {
		span.SetAttributes(semconv.DBQueryText(texts(data.Batch)))
	}
	return ctx
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

// TraceBatchQuery creates a span for a statement that failed. A statement that succeeded gets no
// span. pgx reports only the end of such a statement, so its span would have no duration.
func (t tracer) TraceBatchQuery(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchQueryData) {
	if data.Err != nil {
		t.Tracer.TraceBatchQuery(ctx, conn, data)
	}
}
