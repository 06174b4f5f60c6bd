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
	for _, o := range outcomes {
		instrument.Begin(made.reads, o)
	}
	for _, result := range results {
		instrument.Begin(made.questions, result)
	}
	return made
}

// The attributes of each read are made once.
var (
	outcomes = labels("outcome", Fresh, Waited, Authority, Stale, Failed)
	results  = labels("result", "answered", "away", "refused")
	reached  = map[bool]metric.MeasurementOption{
		true: metric.WithAttributes(attribute.Bool("reached", true)), false: metric.WithAttributes(attribute.Bool("reached", false)),
	}
)

func labels[V ~string](name string, values ...V) map[V]metric.MeasurementOption {
	all := map[V]metric.MeasurementOption{}
	for _, v := range values {
		all[v] = metric.WithAttributes(attribute.String(name, string(v)))
	}
	return all
}

func (m metrics) asked(ctx context.Context, result string) {
	m.questions.Add(ctx, 1, results[result])
}

func (m metrics) waiting(ctx context.Context, delta int64) { m.waiters.Add(ctx, delta) }

func (m metrics) waited(ctx context.Context, took time.Duration, inTime bool) {
	m.wait.Record(ctx, took.Seconds(), reached[inTime])
}

// Count counts a read that asked for freshness.
func (w *Waiters) Count(ctx context.Context, o Outcome) {
	if of, known := outcomes[o]; known { // a query that panics has no outcome
		w.metrics.reads.Add(ctx, 1, of)
	}
}
