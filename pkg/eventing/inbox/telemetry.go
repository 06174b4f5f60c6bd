package inbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
)

const scope = "example.com/lockstep/pkg/eventing/inbox"

// metrics are the consumer's instruments; docs/promises.md says what each shows.
type metrics struct {
	subscription metric.MeasurementOption
	events       metric.Int64Counter
	deadLetters  metric.Int64Counter
	repairs      metric.Int64Counter
	batchSize    metric.Int64Histogram
	duration     metric.Float64Histogram
	visible      metric.Float64Histogram
	inARow       atomic.Int64
	open         atomic.Int64
	callback     metric.Registration
}

func newMetrics(subscription string) (*metrics, error) {
	m := metrics{subscription: metric.WithAttributes(attribute.String("subscription", subscription))}
	var errs [8]error
	meter := otel.Meter(scope)
	m.events, errs[0] = meter.Int64Counter("inbox.events", metric.WithUnit("{event}"),
		metric.WithDescription("Events handled, by outcome: applied, stale, duplicate or gap"))
	m.deadLetters, errs[1] = meter.Int64Counter("inbox.dead_letters", metric.WithUnit("{event}"),
		metric.WithDescription("Events sent to the dead-letter topic: each needs a person"))
	m.repairs, errs[2] = meter.Int64Counter("inbox.gaps.repaired", metric.WithUnit("{gap}"),
		metric.WithDescription("Gaps filled from the owner"))
	m.batchSize, errs[3] = meter.Int64Histogram("inbox.batch.size", metric.WithUnit("{event}"),
		metric.WithDescription("Events per transaction"))
	m.duration, errs[4] = meter.Float64Histogram("inbox.batch.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of one transaction, begin to commit"))
	m.visible, errs[5] = meter.Float64Histogram("inbox.commit_to_visible", metric.WithUnit("s"),
		metric.WithDescription("Age of an event when its effect was committed"))
	open, err := meter.Int64ObservableGauge("inbox.gaps.open", metric.WithUnit("{gap}"),
		metric.WithDescription("Aggregates that wait for a repair from their owner"))
	errs[6] = err
	failing, err := meter.Int64ObservableGauge("inbox.failures_in_a_row", metric.WithUnit("{batch}"),
		metric.WithDescription("Batches in a row that met an outage of the database; 0 is healthy"))
	errs[7] = err
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	m.callback, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(open, m.open.Load(), m.subscription)
		o.ObserveInt64(failing, m.inARow.Load(), m.subscription)
		return nil
	}, open, failing)
	return &m, err
}

func (m *metrics) unregister() { _ = m.callback.Unregister() }

func (m *metrics) failing(batches int) { m.inARow.Store(int64(batches)) }

func (m *metrics) held(delta int64) { m.open.Add(delta) }

func (m *metrics) repaired(ctx context.Context) { m.repairs.Add(ctx, 1, m.subscription) }

func (m *metrics) buried(ctx context.Context) { m.deadLetters.Add(ctx, 1, m.subscription) }

func (m *metrics) batch(ctx context.Context, n int, took time.Duration) {
	m.batchSize.Record(ctx, int64(n), m.subscription)
	m.duration.Record(ctx, took.Seconds(), m.subscription)
}

func (m *metrics) handled(ctx context.Context, o Outcome, d *delivery) {
	m.events.Add(ctx, 1, m.subscription, metric.WithAttributes(attribute.String("outcome", outcomeName(o))))
	if o == Applied {
		m.visible.Record(ctx, d.age().Seconds(), m.subscription)
	}
}

// startProcess begins the span of one event, in the trace of the request that
// made the change.
func startProcess(ctx context.Context, consumer string, e eventing.Event) (context.Context, trace.Span) {
	if sc := eventing.SpanContext(e.TraceParent); sc.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return otel.Tracer(scope).Start(ctx, "process "+e.Type,
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "gcp_pubsub"),
			attribute.String("messaging.destination.name", consumer),
			attribute.String("messaging.gcp_pubsub.message.ordering_key", e.AggregateID),
			attribute.String("event_id", e.ID.String())))
}
