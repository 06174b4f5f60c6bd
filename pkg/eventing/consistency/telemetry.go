package consistency

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// metrics are the instruments of reads; docs/promises.md explains each.
type metrics struct {
	reads     metric.Int64Counter
	questions metric.Int64Counter
	waiters   metric.Int64UpDownCounter
	wait      metric.Float64Histogram
}

func newMetrics() metrics {
	m := instrument.For("example.com/lockstep/pkg/eventing/consistency")
	made := metrics{
		reads: m.Counter("consistency.reads", "{read}",
			"Reads that asked for freshness, by outcome: fresh, waited, authority, stale or failed"),
		questions: m.Counter("consistency.questions", "{question}",
			"Readers' questions to the owner, by result: answered, away, or refused by the circuit"),
		waiters: m.Level("consistency.waiters", "{reader}", "Readers that wait for the copy just now"),
		wait:    m.Durations("consistency.wait", "Time that a reader waited for the copy, by whether it was reached"),
	}
	for _, o := range []Outcome{Fresh, Waited, Authority, Stale, Failed} {
		instrument.Begin(made.reads, outcomeOf(o))
	}
	for _, result := range []string{"answered", "away", "refused"} {
		instrument.Begin(made.questions, resultOf(result))
	}
	return made
}

func outcomeOf(o Outcome) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("outcome", string(o)))
}

func resultOf(result string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("result", result))
}

func (m metrics) asked(ctx context.Context, result string) {
	m.questions.Add(ctx, 1, resultOf(result))
}

func (m metrics) waiting(ctx context.Context, delta int64) { m.waiters.Add(ctx, delta) }

func (m metrics) waited(ctx context.Context, took time.Duration, reached bool) {
	m.wait.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.Bool("reached", reached)))
}

// Count counts a read that asked for freshness.
func (w *Waiters) Count(ctx context.Context, o Outcome) {
	w.metrics.reads.Add(ctx, 1, outcomeOf(o))
}
