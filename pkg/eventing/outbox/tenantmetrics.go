package outbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
	"example.com/lockstep/pkg/eventing/outbox/queue"
)

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
		held:   meter.Gauge("outbox.tenants.held", "{tenant}", "Tenants above their rate, whose events wait for turns"),
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

// observe observes the backlogs of tenants, and how many are held.
func (m tenantMetrics) observe(o metric.Observer, b *backlogReading, held int) {
	o.ObserveInt64(m.held, int64(held))
	for _, t := range labelled(b.tenants) {
		label := metric.WithAttributeSet(attribute.NewSet(attribute.String("tenant", t.Tenant)))
		o.ObserveInt64(m.pending, t.Pending, label)
		o.ObserveInt64(m.parked, t.Parked, label)
		o.ObserveFloat64(m.oldest, b.grown(t.Oldest).Seconds(), label)
	}
}

// labelled are the first of all, which have the most events, by name, and the rest in one.
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
