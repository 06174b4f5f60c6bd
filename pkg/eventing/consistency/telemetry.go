package consistency

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

// metrics are the instruments of reads; docs/observability.md explains each.
type metrics struct {
	meter            instrument.Meter
	outcomes, result *instrument.Few
	reads, questions metric.Int64Counter
	waiters          metric.Int64ObservableUpDownCounter
	wait             metric.Float64Histogram
}

var ofReached = map[bool]metric.MeasurementOption{
	true: metric.WithAttributes(attribute.Bool("reached", true)), false: metric.WithAttributes(attribute.Bool("reached", false)),
}

func newMetrics() metrics {
	m := instrument.For("example.com/lockstep/pkg/eventing/consistency")
	made := metrics{
		meter: m, outcomes: instrument.NewFew("outcome"), result: instrument.NewFew("result"),
		reads: m.Counter("consistency.reads", "{read}",
			"Reads that asked for freshness, by outcome: fresh, waited, authority, stale or failed"),
		questions: m.Counter("consistency.questions", "{question}",
			"Readers' questions to the owner, by result: answered, away, or refused by the circuit"),
		waiters: m.Level("consistency.waiters", "{reader}", "Readers that wait for the copy just now"),
		wait:    m.Durations("consistency.wait", "Time that a reader waited for the copy, by whether it was reached"),
	}
	for _, o := range []Outcome{Fresh, Waited, Authority, Stale, Failed} {
		instrument.Begin(made.reads, made.outcomes.Of(string(o)))
	}
	for _, result := range []string{"answered", "away", "refused"} {
		instrument.Begin(made.questions, made.result.Of(result))
	}
	return made
}

// observe reports how many readers wait, until stop is called.
func (w *Waiters) observe() (stop func()) {
	return w.metrics.meter.Observe(func(_ context.Context, o metric.Observer) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		o.ObserveInt64(w.metrics.waiters, int64(w.count))
		return nil
	}, w.metrics.waiters)
}

// Count counts a read that asked for freshness.
func (w *Waiters) Count(ctx context.Context, o Outcome) {
	w.metrics.reads.Add(ctx, 1, w.metrics.outcomes.Of(string(o)))
}
