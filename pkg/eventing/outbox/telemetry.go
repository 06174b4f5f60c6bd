package outbox

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const scope = "example.com/lockstep/pkg/eventing/outbox"

// metrics are the relay's instruments; docs/promises.md explains each.
type metrics struct {
	published  metric.Int64Counter
	requests   metric.Int64Counter
	retries    metric.Int64Counter
	failures   metric.Int64Counter
	leasesLost metric.Int64Counter
	batch      metric.Int64Histogram
	duration   metric.Float64Histogram
	eventAge   metric.Float64Histogram
	callback   metric.Registration
}

func newMetrics(r *Relay) (*metrics, error) {
	var m metrics
	var errs [14]error
	meter := otel.Meter(scope)
	m.published, errs[0] = meter.Int64Counter("outbox.published", metric.WithUnit("{event}"),
		metric.WithDescription("Events acknowledged by the broker"))
	m.failures, errs[1] = meter.Int64Counter("outbox.publish.failures", metric.WithUnit("{failure}"),
		metric.WithDescription("Publishes that failed, by kind: outage or rejection"))
	m.leasesLost, errs[2] = meter.Int64Counter("outbox.leases.lost", metric.WithUnit("{aggregate}"),
		metric.WithDescription("Leases that another relay had taken over by the time of settling: their events are sent again"))
	m.duration, errs[3] = meter.Float64Histogram("outbox.publish.duration", metric.WithUnit("s"), eventing.Seconds,
		metric.WithDescription("Time to publish the claimed events of one aggregate"))
	m.eventAge, errs[4] = meter.Float64Histogram("outbox.event_age_at_publish", metric.WithUnit("s"), eventing.Seconds,
		metric.WithDescription("Age of an event, since its occurred_at, when the broker acknowledged it"))
	m.requests, errs[8] = meter.Int64Counter("outbox.publish.requests", metric.WithUnit("{request}"),
		metric.WithDescription("Publish requests, whatever became of them"))
	m.retries, errs[9] = meter.Int64Counter("outbox.publish.retries", metric.WithUnit("{event}"),
		metric.WithDescription("Events tried again after the broker had refused them"))
	m.batch, errs[10] = meter.Int64Histogram("outbox.batch.size", metric.WithUnit("{event}"), eventing.Counts,
		metric.WithDescription("Successive events of one aggregate claimed together"))
	paused, err := meter.Int64ObservableGauge("outbox.topics.paused", metric.WithUnit("{topic}"),
		metric.WithDescription("1 for a topic to which nothing but probes is sent, since it is out; 0 for any other"))
	errs[11] = err
	pausedAge, err := meter.Float64ObservableGauge("outbox.topics.paused_age", metric.WithUnit("s"),
		metric.WithDescription("How long a topic has been paused, by cause: outage, or refusals of every aggregate; only while it is"))
	errs[12] = err
	pending, err := meter.Int64ObservableGauge("outbox.pending", metric.WithUnit("{event}"),
		metric.WithDescription("Events not yet published, capped at 10000"))
	errs[5] = err
	parked, err := meter.Int64ObservableGauge("outbox.parked", metric.WithUnit("{event}"),
		metric.WithDescription("Events that the broker refuses: each holds up its aggregate until an operator acts"))
	errs[6] = err
	oldest, err := meter.Float64ObservableGauge("outbox.oldest_pending_age", metric.WithUnit("s"),
		metric.WithDescription("Age of the oldest event that waits to be published"))
	errs[7] = err
	known, err := meter.Int64ObservableGauge("outbox.backlog.known", metric.WithUnit("1"),
		metric.WithDescription("1 while outbox.pending, outbox.parked and outbox.oldest_pending_age are up to date; 0 when the database "+
			"has not answered: they then stay as they were, and the age grows"))
	errs[13] = err
	failing, err := meter.Int64ObservableGauge("outbox.failures_in_a_row", metric.WithUnit("{try}"),
		metric.WithDescription("Tries in a row that met an outage of the database or of a topic; 0 is healthy"))
	if err := errors.Join(append(errs[:], err)...); err != nil {
		return nil, err
	}
	m.callback, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(failing, r.tries())
		for _, c := range r.circuits { // types of one topic observe the same
			topic, out := attribute.String("topic", c.topic), int64(0)
			if cause, since := c.pause(); !since.IsZero() {
				out = 1
				o.ObserveFloat64(pausedAge, time.Since(since).Seconds(), metric.WithAttributes(topic, attribute.String("cause", cause)))
			}
			o.ObserveInt64(paused, out, metric.WithAttributes(topic))
		}
		b := r.backlog.Load()
		o.ObserveInt64(known, b.known())
		o.ObserveInt64(pending, b.Pending)
		o.ObserveInt64(parked, b.Parked)
		o.ObserveFloat64(oldest, b.oldest().Seconds())
		return nil
	}, pending, parked, oldest, known, failing, paused, pausedAge)
	return &m, err
}

// tries is the highest count of failures in a row, of the topics and the database.
func (r *Relay) tries() int64 {
	tries := r.failures.Load()
	for _, c := range r.circuits {
		tries = max(tries, int64(c.failures()))
	}
	return tries
}

func (m *metrics) unregister() { _ = m.callback.Unregister() }

func (m *metrics) settled(ctx context.Context, batch []publishResult, lost int) {
	m.leasesLost.Add(ctx, int64(lost))
	for _, l := range batch {
		rep, events := l.report, l.batch.events
		switch {
		case rep.rejected:
			m.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", "rejection")))
		case rep.err != nil:
			m.failures.Add(ctx, 1, metric.WithAttributes(attribute.String("kind", "outage")))
		}
		if events[0].Rejections > 0 && rep.requests > 0 {
			m.retries.Add(ctx, 1)
		}
		m.requests.Add(ctx, int64(rep.requests))
		m.batch.Record(ctx, int64(len(events)))
		m.duration.Record(ctx, rep.took.Seconds())
		m.published.Add(ctx, int64(rep.published))
		for _, e := range events[:rep.published] {
			m.eventAge.Record(ctx, rep.ended.Sub(e.OccurredAt).Seconds())
		}
	}
}

// startPublish begins the span of one publish request, linked to the requests
// whose changes it carries.
func startPublish(ctx context.Context, topic string, r queue.Batch) (context.Context, trace.Span) {
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
