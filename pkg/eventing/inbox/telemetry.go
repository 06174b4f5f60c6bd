package inbox

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"example.com/lockstep/pkg/eventing/instrument"
)

const scope = "example.com/lockstep/pkg/eventing/inbox"

// metrics are the consumer's instruments; docs/observability.md explains each.
type metrics struct {
	subscription metric.MeasurementOption
	outcomes     [outcomeCount]metric.MeasurementOption

	events, redeliveries, nacks, ackFailures     metric.Int64Counter
	deadLetters, repairs, repairFailures, purges metric.Int64Counter
	batchSize                                    metric.Int64Histogram
	duration, eventAge                           metric.Float64Histogram

	inARow     atomic.Int64
	notPulled  atomic.Int64
	noTopic    atomic.Bool
	away       func() bool // no stream works
	unregister func()
}

func newMetrics(subscription string, inHand *budget, waiting *blockedAggregates, away func() bool) *metrics {
	name := attribute.String("subscription", subscription)
	m := metrics{subscription: metric.WithAttributes(name), away: away}
	for o := range m.outcomes {
		m.outcomes[o] = metric.WithAttributes(name, attribute.String("outcome", Outcome(o).String()))
	}
	meter := instrument.For(scope)
	m.events = meter.Counter("inbox.events", "{event}", "Events handled, by outcome: applied, stale, duplicate, gap, diverged or lost; "+
		"the last two mean that the owner has lost commits")
	m.redeliveries = meter.Counter("inbox.redeliveries", "{message}", "Messages that the broker says it delivered before")
	m.nacks = meter.Counter("inbox.nacks", "{message}", "Messages given back at the end of a process: nothing else is")
	m.ackFailures = meter.Counter("inbox.acks.failed", "{message}", "Acks that an exactly-once subscription refused: leases that were lost")
	m.deadLetters = meter.Counter("inbox.dead_letters", "{event}", "Events sent to the dead-letter topic: each needs a person")
	m.repairs = meter.Counter("inbox.gaps.repaired", "{gap}", "Gaps filled from the owner")
	m.repairFailures = meter.Counter("inbox.repairs.failed", "{attempt}", "Repairs that failed: the owner is away, or behind its own events")
	m.purges = meter.Counter("inbox.purged", "{row}", "Rows of settled events deleted after their retention")
	instrument.Begin(m.events, m.outcomes[:]...)
	for _, c := range []metric.Int64Counter{m.redeliveries, m.nacks, m.ackFailures, m.deadLetters, m.repairs, m.repairFailures, m.purges} {
		instrument.Begin(c, m.subscription)
	}
	m.batchSize = meter.Sizes("inbox.batch.size", "{event}", "Events per transaction")
	m.duration = meter.Durations("inbox.batch.duration", "Time of one transaction, begin to commit")
	m.eventAge = meter.Durations("inbox.event_age_at_apply", "Age of an event, since its occurred_at, when its effect was committed")
	open := meter.Gauge("inbox.gaps.open", "{gap}", "Aggregates that wait for a repair from their owner")
	blocked := meter.Gauge("inbox.blocked_aggregates", "{aggregate}",
		"Aggregates that cannot go on just now, by the reason of their first event")
	messages := meter.Gauge("inbox.in_flight_messages", "{message}", "Messages in hand, from delivery to ack")
	bytes := meter.Gauge("inbox.in_flight_bytes", "By", "Memory of the messages in hand; at the bound the consumer stops pulling")
	failing := meter.Gauge("inbox.failures_in_a_row", "{batch}", "Batches in a row that met an outage of the database; 0 is healthy")
	pull := meter.Gauge("inbox.pull.failures_in_a_row", "{try}",
		"Tries in a row to pull the subscription that the broker refused: it is missing, or its topic or permission is; "+
			"1 while no stream works, since the broker is away; 0 is healthy")
	m.unregister = meter.Observe(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(open, waiting.counts[openGap].Load(), m.subscription)
		for r := range reasons {
			o.ObserveInt64(blocked, waiting.counts[r].Load(), metric.WithAttributes(name, attribute.String("reason", r.String())))
		}
		l := inHand.inHand()
		o.ObserveInt64(messages, l.messages, m.subscription)
		o.ObserveInt64(bytes, l.bytes, m.subscription)
		o.ObserveInt64(failing, m.inARow.Load(), m.subscription)
		o.ObserveInt64(pull, m.pullFailures(), m.subscription)
		return nil
	}, open, blocked, messages, bytes, failing, pull)
	return &m
}

func (m *metrics) failing(batches int)   { m.inARow.Store(int64(batches)) }
func (m *metrics) pullFailing(tries int) { m.notPulled.Store(int64(tries)) }

// FailuresInARow returns the highest count of failures in a row: batches that met an outage of the
// database, or pulls that brought nothing. With Options.Streams it is at least 1 while no stream has worked
// for 20 seconds, for example because the broker is away. While the count is above 0, the consumer
// applies no event, or receives no new event.
func (c *Consumer) FailuresInARow() int64 {
	return max(c.metrics.inARow.Load(), c.metrics.pullFailures())
}

// pullFailures returns the number of pulls in a row that the broker has refused. While the subscription has no
// topic, or no stream works, the number is at least 1.
func (m *metrics) pullFailures() int64 {
	if m.noTopic.Load() || m.away() {
		return max(1, m.notPulled.Load())
	}
	return m.notPulled.Load()
}

func (m *metrics) repaired(ctx context.Context)     { m.repairs.Add(ctx, 1, m.subscription) }
func (m *metrics) repairFailed(ctx context.Context) { m.repairFailures.Add(ctx, 1, m.subscription) }
func (m *metrics) deadLettered(ctx context.Context) { m.deadLetters.Add(ctx, 1, m.subscription) }
func (m *metrics) redelivered(ctx context.Context)  { m.redeliveries.Add(ctx, 1, m.subscription) }
func (m *metrics) nacked(ctx context.Context)       { m.nacks.Add(ctx, 1, m.subscription) }
func (m *metrics) ackFailed(ctx context.Context)    { m.ackFailures.Add(ctx, 1, m.subscription) }

func (m *metrics) purged(ctx context.Context, rows int64) { m.purges.Add(ctx, rows, m.subscription) }

func (m *metrics) batch(ctx context.Context, n int, took time.Duration) {
	m.batchSize.Record(ctx, int64(n), m.subscription)
	m.duration.Record(ctx, took.Seconds(), m.subscription)
}

// handled counts the events of a batch whose transaction was just committed. It counts each
// divergence once, however often the owner is asked about it.
func (m *metrics) handled(ctx context.Context, batch []*delivery, outcomes map[uuid.UUID]Outcome) {
	var counts [outcomeCount]int64
	for _, d := range batch {
		o := outcomes[d.id()]
		if o == Diverged && d.diverged {
			continue
		}
		counts[o]++
		if o == Applied {
			m.eventAge.Record(ctx, d.age().Seconds(), m.subscription)
		}
	}
	for o, n := range counts {
		if n > 0 {
			m.events.Add(ctx, n, m.outcomes[o])
		}
	}
}
