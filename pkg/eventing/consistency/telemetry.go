package consistency

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing"
)

// metrics are the instruments of reads; docs/promises.md explains each.
type metrics struct {
	reads     metric.Int64Counter
	questions metric.Int64Counter
	waiters   metric.Int64UpDownCounter
	wait      metric.Float64Histogram
}

// newMetrics leaves errors to OpenTelemetry's handler: its instruments work in
// any case, if only as ones that do nothing.
func newMetrics() (m metrics) {
	var errs [4]error
	meter := otel.Meter("example.com/lockstep/pkg/eventing/consistency")
	m.reads, errs[0] = meter.Int64Counter("consistency.reads", metric.WithUnit("{read}"),
		metric.WithDescription("Reads that asked for freshness, by outcome: fresh, waited, authority, stale or failed"))
	m.waiters, errs[1] = meter.Int64UpDownCounter("consistency.waiters", metric.WithUnit("{reader}"),
		metric.WithDescription("Readers that wait for the copy just now"))
	m.wait, errs[2] = meter.Float64Histogram("consistency.wait", metric.WithUnit("s"), eventing.Seconds,
		metric.WithDescription("Time that a reader waited for the copy, by whether it was reached"))
	m.questions, errs[3] = meter.Int64Counter("consistency.questions", metric.WithUnit("{question}"),
		metric.WithDescription("Readers' questions to the owner, by result: answered, away, or refused by the circuit"))
	if err := errors.Join(errs[:]...); err != nil {
		otel.Handle(err)
	}
	return m
}

func (m metrics) asked(ctx context.Context, result string) {
	m.questions.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
}

func (m metrics) waiting(ctx context.Context, delta int64) { m.waiters.Add(ctx, delta) }

func (m metrics) waited(ctx context.Context, took time.Duration, reached bool) {
	m.wait.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.Bool("reached", reached)))
}

// Count counts a read that asked for freshness.
func (w *Waiters) Count(ctx context.Context, o Outcome) {
	w.metrics.reads.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", string(o))))
}
