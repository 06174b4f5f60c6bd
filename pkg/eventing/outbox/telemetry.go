package outbox

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

const scope = "example.com/lockstep/pkg/eventing/outbox"

// metrics are the relay's instruments; docs/promises.md says what each shows.
type metrics struct {
	published  metric.Int64Counter
	failures   metric.Int64Counter
	leasesLost metric.Int64Counter
	duration   metric.Float64Histogram
	latency    metric.Float64Histogram
	inARow     atomic.Int64
	callback   metric.Registration
}

func newMetrics(s store) (*metrics, error) {
	var m metrics
	var errs [8]error
	meter := otel.Meter(scope)
	m.published, errs[0] = meter.Int64Counter("outbox.published", metric.WithUnit("{event}"),
		metric.WithDescription("Events acknowledged by the broker"))
	m.failures, errs[1] = meter.Int64Counter("outbox.publish.failures", metric.WithUnit("{failure}"),
		metric.WithDescription("Publishes that failed, by kind: outage or rejection"))
	m.leasesLost, errs[2] = meter.Int64Counter("outbox.leases.lost", metric.WithUnit("{event}"),
		metric.WithDescription("Published events whose lease another relay had taken over: each is sent again"))
	m.duration, errs[3] = meter.Float64Histogram("outbox.publish.duration", metric.WithUnit("s"),
		metric.WithDescription("Time to publish the claimed events of one aggregate"))
	m.latency, errs[4] = meter.Float64Histogram("outbox.commit_to_publish", metric.WithUnit("s"),
		metric.WithDescription("Age of an event when the broker acknowledged it"))
	pending, err := meter.Int64ObservableGauge("outbox.pending", metric.WithUnit("{event}"),
		metric.WithDescription("Events not yet published, capped at 10000"))
	errs[5] = err
	parked, err := meter.Int64ObservableGauge("outbox.parked", metric.WithUnit("{event}"),
		metric.WithDescription("Events that the broker refuses: each holds up its aggregate until an operator acts"))
	errs[6] = err
	oldest, err := meter.Float64ObservableGauge("outbox.oldest_pending_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest event that waits to be published"))
	errs[7] = err
	failing, err := meter.Int64ObservableGauge("outbox.failures_in_a_row", metric.WithUnit("{round}"),
		metric.WithDescription("Rounds in a row that met an outage of the database or the broker; 0 is healthy"))
	if err := errors.Join(append(errs[:], err)...); err != nil {
		return nil, err
	}
	m.callback, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		o.ObserveInt64(failing, m.inARow.Load())
		b, err := s.backlog(ctx)
		if err != nil {
			return err
		}
		o.ObserveInt64(pending, b.pending)
		o.ObserveInt64(parked, b.parked)
		o.ObserveFloat64(oldest, b.oldest.Seconds())
		return nil
	}, pending, parked, oldest, failing)
	return &m, err
}

func (m *metrics) unregister() { _ = m.callback.Unregister() }

func (m *metrics) failing(rounds int) { m.inARow.Store(int64(rounds)) }

func (m *metrics) settled(ctx context.Context, reports []report, lost int64) {
	if lost > 0 {
		m.leasesLost.Add(ctx, lost)
	}
	for _, r := range reports {
		if r.outage != nil {
			m.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", "outage")))
		}
		if r.rejected != nil {
			m.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", "rejection")))
		}
		m.duration.Record(ctx, r.took.Seconds())
		m.published.Add(ctx, int64(len(r.published)))
		for _, e := range r.published {
			m.latency.Record(ctx, time.Since(e.OccurredAt).Seconds())
		}
	}
}

// startPublish begins the span of one publish request, linked to the requests
// whose changes it carries.
func startPublish(ctx context.Context, topic string, r run) (context.Context, trace.Span) {
	var links []trace.Link
	for _, e := range r {
		if sc := eventing.SpanContext(e.TraceParent); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	return otel.Tracer(scope).Start(ctx, "publish events",
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithLinks(links...),
		trace.WithAttributes(
			attribute.String("messaging.system", "gcp_pubsub"),
			attribute.String("messaging.destination.name", topic),
			attribute.String("messaging.gcp_pubsub.message.ordering_key", r[0].AggregateID),
			attribute.Int("messaging.batch.message_count", len(r))))
}
