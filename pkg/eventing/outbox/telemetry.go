package outbox

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

const scope = "example.com/lockstep/pkg/eventing/outbox"

// metrics are the relay's instruments. docs/observability.md explains each of them.
type metrics struct {
	published  metric.Int64Counter
	handedOver metric.Int64Counter
	requests   metric.Int64Counter
	retries    metric.Int64Counter
	failures   metric.Int64Counter
	leasesLost metric.Int64Counter
	batch      metric.Int64Histogram
	duration   metric.Float64Histogram
	eventAge   metric.Float64Histogram
	tenants    tenantMetrics
	unregister func()
}

func newMetrics(r *Relay) *metrics {
	meter := instrument.For(scope)
	m := metrics{
		published: meter.Counter("outbox.published", "{event}", "Events acknowledged by the broker"),
		handedOver: meter.Counter("outbox.handed_over", "{event}",
			"Events that a transaction handed over to the relay of its process; the relay claims all others from the table"),
		requests: meter.Counter("outbox.publish.requests", "{request}", "Publish requests, whatever became of them"),
		retries:  meter.Counter("outbox.publish.retries", "{event}", "Events tried again after the broker had refused them"),
		failures: meter.Counter("outbox.publish.failures", "{failure}",
			"Publishes that failed, by kind, outage or rejection, and by the code of the answer"),
		leasesLost: meter.Counter("outbox.leases.lost", "{aggregate}",
			"Leases that another relay had taken over by the time of settling: their events are sent again"),
		batch:    meter.Sizes("outbox.batch.size", "{event}", "Successive events of one aggregate in one batch"),
		duration: meter.Durations("outbox.publish.duration", "Time to publish a batch of one aggregate"),
		eventAge: meter.Durations("outbox.event_age_at_publish", "Age of an event, since its occurred_at, when the broker acknowledged it"),
		tenants:  newTenantMetrics(meter),
	}
	for _, c := range []metric.Int64Counter{m.published, m.handedOver, m.requests, m.retries, m.leasesLost} {
		instrument.Begin(c)
	}
	for _, code := range refusalCodes {
		instrument.Begin(m.failures, failure("rejection", code))
	}
	paused := meter.Gauge("outbox.topics.paused", "{topic}",
		"1 for a topic to which nothing but probes is sent, since it is out; 0 for any other")
	pausedAge := meter.Age("outbox.topics.paused_age",
		"How long a topic has been paused, by cause: outage, or refusals of every aggregate; only while it is")
	pending := meter.Gauge("outbox.pending", "{event}", "Events not yet published, capped at 10000")
	parked := meter.Gauge("outbox.parked", "{event}",
		"Events that the broker refuses: each holds up its aggregate until an operator acts")
	oldest := meter.Age("outbox.oldest_pending_age",
		"Age of the oldest event that waits to be published, but for those of tenants that are held")
	known := meter.Gauge("outbox.backlog.known", "{relay}",
		"1 while outbox.pending, outbox.parked and outbox.oldest_pending_age are up to date; 0 when the database "+
			"has not answered: they then stay as they were, and an age above 0 grows")
	failing := meter.Gauge("outbox.failures_in_a_row", "{try}",
		"Tries in a row that met an outage of the database or of a topic; 0 is healthy")
	m.unregister = meter.Observe(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(failing, r.FailuresInARow())
		for _, p := range r.pauses { // types of one topic observe the same
			topic, out := attribute.String("topic", p.topic), int64(0)
			if cause, since := p.reason(); !since.IsZero() {
				out = 1
				o.ObserveFloat64(pausedAge, time.Since(since).Seconds(), metric.WithAttributes(topic, attribute.String("cause", cause)))
			}
			o.ObserveInt64(paused, out, metric.WithAttributes(topic))
		}
		b := r.backlog.Load()
		o.ObserveInt64(known, b.known())
		o.ObserveInt64(pending, b.Pending)
		o.ObserveInt64(parked, b.Parked)
		o.ObserveFloat64(oldest, b.grown(b.Oldest).Seconds())
		m.tenants.observe(o, b, r.followUps.heldTenants())
		return nil
	}, append(m.tenants.gauges(), pending, parked, oldest, known, failing, paused, pausedAge)...)
	return &m
}

// refusalCodes are the codes of a refusal: InvalidArgument from the broker, and Unknown for an
// event whose type has no topic.
var refusalCodes = []codes.Code{codes.InvalidArgument, codes.Unknown}

// failure has the labels of a failed publish. kind is outage, or rejection for a refusal, as alerts and boards name it.
func failure(kind string, code codes.Code) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("kind", kind), attribute.String("code", code.String()))
}

// FailuresInARow returns the highest count of failures in a row, among the topics and the database. While it is above
// 0, new events may have to wait. It is the gauge outbox_failures_in_a_row.
func (r *Relay) FailuresInARow() int64 {
	tries := r.failures.Load()
	for _, p := range r.pauses {
		tries = max(tries, int64(p.failures()))
	}
	return tries
}

func (m *metrics) settled(ctx context.Context, written []*unsettled, lost int) {
	m.leasesLost.Add(ctx, int64(lost))
	for _, u := range written {
		rep, events := u.report, u.batch.events
		if u.mayBeGone { // its numbers were counted with the first settlement, or nothing was sent
			continue
		}
		switch {
		case rep.refused:
			m.failures.Add(ctx, 1, failure("rejection", status.Code(rep.err)))
		case rep.err != nil:
			m.failures.Add(ctx, 1, failure("outage", status.Code(rep.err)))
		}
		if events[0].Refusals > 0 && rep.requests > 0 {
			m.retries.Add(ctx, 1)
		}
		m.tenants.settled(ctx, u)
		m.requests.Add(ctx, int64(rep.requests))
		m.batch.Record(ctx, int64(len(events)))
		m.duration.Record(ctx, rep.took.Seconds())
		m.published.Add(ctx, int64(rep.published))
		for _, e := range events[:rep.published] {
			m.eventAge.Record(ctx, rep.ended.Sub(e.OccurredAt).Seconds())
		}
	}
}

// tenantMetrics are the relay's instruments by tenant.
type tenantMetrics struct {
	few                   *instrument.Few
	failures              metric.Int64Counter
	eventAge              metric.Float64Histogram
	pending, parked, held metric.Int64ObservableGauge
	oldest                metric.Float64ObservableGauge
}

func newTenantMetrics(meter instrument.Meter) tenantMetrics {
	return tenantMetrics{
		few: instrument.NewFew("tenant"),
		failures: meter.Counter("outbox.tenant.failures", "{failure}",
			"Publishes that failed, by tenant: the first ten by name, the rest as other"),
		eventAge: meter.Durations("outbox.tenant.event_age_at_publish",
			"Age of the oldest event of a batch, since its occurred_at, when the broker acknowledged it, by tenant"),
		pending: meter.Gauge("outbox.tenant.pending", "{event}",
			"Events among the first 10000 not yet published, by tenant: the ten with the most by name, the rest as other"),
		parked: meter.Gauge("outbox.tenant.parked", "{event}", "Events among them that the broker refuses, by tenant"),
		oldest: meter.Age("outbox.tenant.oldest_pending_age", "Age of the oldest of them that is not parked, by tenant"),
		held:   meter.Gauge("outbox.tenants.held", "{tenant}", "Tenants above their rate or their share, whose events wait for turns"),
	}
}

func (m tenantMetrics) gauges() []metric.Observable {
	return []metric.Observable{m.pending, m.parked, m.oldest, m.held}
}

// settled counts the result of one batch.
func (m tenantMetrics) settled(ctx context.Context, u *unsettled) {
	events := u.batch.events
	label := m.few.Of(events.Tenant())
	if u.report.err != nil {
		m.failures.Add(ctx, 1, label)
	}
	if u.report.published > 0 {
		m.eventAge.Record(ctx, u.report.ended.Sub(events[0].OccurredAt).Seconds(), label)
	}
}

// observe reports the backlog of each tenant, and the number of held tenants, which is held.
func (m tenantMetrics) observe(o metric.Observer, b *backlogReading, held int) {
	o.ObserveInt64(m.held, int64(held))
	for _, t := range labelled(b.tenants) {
		label := metric.WithAttributeSet(attribute.NewSet(attribute.String("tenant", t.Tenant)))
		o.ObserveInt64(m.pending, t.Pending, label)
		o.ObserveInt64(m.parked, t.Parked, label)
		o.ObserveFloat64(m.oldest, b.grown(t.Oldest).Seconds(), label)
	}
}

// labelled returns the first instrument.MaxValues backlogs of the slice all unchanged, and combines
// the rest under the name instrument.Other. The slice all has the tenants with the most events
// first.
func labelled(all []queue.TenantBacklog) []queue.TenantBacklog {
	if len(all) <= instrument.MaxValues {
		return all
	}
	rest := queue.TenantBacklog{Tenant: instrument.Other}
	for _, t := range all[instrument.MaxValues:] {
		rest.Pending, rest.Parked, rest.Oldest = rest.Pending+t.Pending, rest.Parked+t.Parked, max(rest.Oldest, t.Oldest)
	}
	return append(all[:instrument.MaxValues:instrument.MaxValues], rest)
}
