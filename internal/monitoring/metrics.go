package monitoring

import (
	"fmt"
	"slices"

	"example.com/lockstep/internal/topics"
)

// Metrics are all metrics of this repository, and the metrics of other makers that alerts use.
var Metrics = slices.Concat(outboxMetrics, inboxMetrics, readModelMetrics, canaryMetrics, requestMetrics, libraryMetrics, googleMetrics)

const (
	video   = "video"
	catalog = "catalog"
	both    = "both"
)

var (
	tenant       = Label{Name: "tenant", Bound: "ten tenants, and other"}
	topic        = Label{Name: "topic", Bound: fmt.Sprintf("the topics of video, %d", len(topics.All))}
	subscription = Label{Name: "subscription", Values: topics.Subscriptions(topics.Catalog)}
	replica      = Label{Name: "aggregate_type", Values: topics.Aggregates()}
	compared     = Label{Name: "aggregate_type", Values: append(topics.Aggregates(), "video_counters")}
	code         = Label{Name: "code", Bound: "gRPC's codes, 17"}
	group        = Label{Name: "consumer_group", Values: []string{"catalog.engagement"}}
)

func labelled(name string, values ...string) Label { return Label{Name: name, Values: values} }

var outboxMetrics = []Metric{
	{Name: "outbox.published", Kind: Counter, Unit: "{event}", Service: video,
		Meaning: "Events acknowledged by the broker"},
	{Name: "outbox.handed_over", Kind: Counter, Unit: "{event}", Service: video,
		Meaning: "Events that a transaction handed over to the relay of its process; the relay claims all others from the table"},
	{Name: "outbox.publish.requests", Kind: Counter, Unit: "{request}", Service: video,
		Meaning: "Publish requests, whatever became of them"},
	{Name: "outbox.publish.retries", Kind: Counter, Unit: "{event}", Service: video,
		Meaning: "Events tried again after the broker had refused them"},
	{Name: "outbox.publish.failures", Kind: Counter, Unit: "{failure}", Service: video,
		Labels:  []Label{labelled("kind", "outage", "rejection"), code},
		Meaning: "Publishes that failed, by kind, outage or rejection, and by the code of the answer"},
	{Name: "outbox.leases.lost", Kind: Counter, Unit: "{aggregate}", Service: video,
		Meaning: "Leases that another relay had taken over by the time of settling: their events are sent again"},
	{Name: "outbox.batch.size", Kind: Histogram, Unit: "{event}", Service: video,
		Meaning: "Successive events of one aggregate in one batch"},
	{Name: "outbox.publish.duration", Kind: Histogram, Unit: "s", Service: video,
		Meaning: "Time to publish a batch of one aggregate"},
	{Name: "outbox.event_age_at_publish", Kind: Histogram, Unit: "s", Service: video,
		Meaning: "Age of an event, since its occurred_at, when the broker acknowledged it"},
	{Name: "outbox.topics.paused", Kind: Gauge, Unit: "{topic}", Service: video, Labels: []Label{topic},
		Meaning: "1 for a topic to which nothing but probes is sent, since it is out; 0 for any other"},
	{Name: "outbox.topics.paused_age", Kind: Gauge, Unit: "s", Service: video, Labels: []Label{topic, labelled("cause", "outage", "refusals")},
		Meaning: "How long a topic has been paused, by cause: outage, or refusals of every aggregate; only while it is",
		Seldom:  "while a topic is paused"},
	{Name: "outbox.pending", Kind: Gauge, Unit: "{event}", Service: video,
		Meaning: "Events not yet published, capped at 10000"},
	{Name: "outbox.parked", Kind: Gauge, Unit: "{event}", Service: video,
		Meaning: "Events that the broker refuses: each holds up its aggregate until an operator acts"},
	{Name: "outbox.oldest_pending_age", Kind: Gauge, Unit: "s", Service: video,
		Meaning: "Age of the oldest event that waits to be published, but for those of tenants that are held"},
	{Name: "outbox.backlog.known", Kind: Gauge, Unit: "{relay}", Service: video,
		Meaning: "1 while outbox.pending, outbox.parked and outbox.oldest_pending_age are up to date; 0 when the database has not answered: " +
			"they then stay as they were, and an age above 0 grows"},
	{Name: "outbox.failures_in_a_row", Kind: Gauge, Unit: "{try}", Service: video,
		Meaning: "Tries in a row that met an outage of the database or of a topic; 0 is healthy"},
}

var inboxMetrics = []Metric{
	{Name: "outbox.tenant.failures", Kind: Counter, Unit: "{failure}", Service: video, Labels: []Label{tenant},
		Meaning: "Publishes that failed, by tenant: the first ten by name, the rest as other",
		Seldom:  "when a publish has failed"},
	{Name: "outbox.tenant.event_age_at_publish", Kind: Histogram, Unit: "s", Service: video, Labels: []Label{tenant},
		Meaning: "Age of the oldest event of a batch, since its occurred_at, when the broker acknowledged it, by tenant"},
	{Name: "outbox.tenant.pending", Kind: Gauge, Unit: "{event}", Service: video, Labels: []Label{tenant},
		Meaning: "Events among the first 10000 not yet published, by tenant: the ten with the most by name, the rest as other",
		Seldom:  "while events are pending"},
	{Name: "outbox.tenant.parked", Kind: Gauge, Unit: "{event}", Service: video, Labels: []Label{tenant},
		Meaning: "Events among them that the broker refuses, by tenant", Seldom: "while events are pending"},
	{Name: "outbox.tenant.oldest_pending_age", Kind: Gauge, Unit: "s", Service: video, Labels: []Label{tenant},
		Meaning: "Age of the oldest of them that is not parked, by tenant", Seldom: "while events are pending"},
	{Name: "outbox.tenants.held", Kind: Gauge, Unit: "{tenant}", Service: video,
		Meaning: "Tenants above their rate or their share, whose events wait for turns"},
	{Name: "inbox.events", Kind: Counter, Unit: "{event}", Service: catalog,
		Labels: []Label{subscription, labelled("outcome", "applied", "stale", "duplicate", "gap", "diverged", "lost")},
		Meaning: "Events handled, by outcome: applied, stale, duplicate, gap, diverged or lost; " +
			"the last two mean that the owner has lost commits"},
	{Name: "inbox.redeliveries", Kind: Counter, Unit: "{message}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Messages that the broker says it delivered before"},
	{Name: "inbox.nacks", Kind: Counter, Unit: "{message}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Messages given back at the end of a process: nothing else is"},
	{Name: "inbox.acks.failed", Kind: Counter, Unit: "{message}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Acks that an exactly-once subscription refused: leases that were lost"},
	{Name: "inbox.dead_letters", Kind: Counter, Unit: "{event}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Events sent to the dead-letter topic: each needs a person"},
	{Name: "inbox.gaps.repaired", Kind: Counter, Unit: "{gap}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Gaps filled from the owner"},
	{Name: "inbox.repairs.failed", Kind: Counter, Unit: "{attempt}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Repairs that failed: the owner is away, or behind its own events"},
	{Name: "inbox.purged", Kind: Counter, Unit: "{row}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Rows of settled events deleted after their retention"},
	{Name: "inbox.batch.size", Kind: Histogram, Unit: "{event}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Events per transaction"},
	{Name: "inbox.batch.duration", Kind: Histogram, Unit: "s", Service: catalog, Labels: []Label{subscription},
		Meaning: "Time of one transaction, begin to commit"},
	{Name: "inbox.event_age_at_apply", Kind: Histogram, Unit: "s", Service: catalog, Labels: []Label{subscription},
		Meaning: "Age of an event, since its occurred_at, when its effect was committed"},
	{Name: "inbox.gaps.open", Kind: Gauge, Unit: "{gap}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Aggregates that wait for a repair from their owner"},
	{Name: "inbox.blocked_aggregates", Kind: Gauge, Unit: "{aggregate}", Service: catalog,
		Labels:  []Label{subscription, labelled("reason", "gap", "locked", "failed", "lacking", "dead_letter", "unknown")},
		Meaning: "Aggregates that cannot go on just now, by the reason of their first event"},
	{Name: "inbox.in_flight_messages", Kind: Gauge, Unit: "{message}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Messages in hand, from delivery to ack"},
	{Name: "inbox.in_flight_bytes", Kind: Gauge, Unit: "By", Service: catalog, Labels: []Label{subscription},
		Meaning: "Memory of the messages in hand; at the bound the consumer stops pulling"},
	{Name: "inbox.failures_in_a_row", Kind: Gauge, Unit: "{batch}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Batches in a row that met an outage of the database; 0 is healthy"},
	{Name: "inbox.pull.failures_in_a_row", Kind: Gauge, Unit: "{try}", Service: catalog, Labels: []Label{subscription},
		Meaning: "Tries in a row to pull the subscription that the broker refused: it is missing, or its topic or permission is; " +
			"1 while no stream works, since the broker is away; 0 is healthy"},
	{Name: "catalog.engagement.offset.lag_ms", Kind: Gauge, Unit: "{ms}", Service: catalog, Labels: []Label{group},
		Meaning: "Age of the last batch's newest message when its offset was saved"},
	{Name: "catalog.engagement.offset.save", Kind: Counter, Unit: "{batch}", Service: catalog, Labels: []Label{group},
		Meaning: "Offsets saved, each with the effects of its batch"},
	{Name: "catalog.engagement.offset.failure", Kind: Counter, Unit: "{batch}", Service: catalog, Labels: []Label{group},
		Meaning: "Offsets that could not be saved: the batch is tried again"},
}

var readModelMetrics = []Metric{
	{Name: "replica.divergences", Kind: Counter, Unit: "{row}", Service: catalog, Labels: []Label{replica},
		Meaning: "Rows that had a history that their owner has lost, and were replaced by the owner's state"},
	{Name: "replica.partial_changes", Kind: Counter, Unit: "{change}", Service: catalog, Labels: []Label{replica},
		Meaning: "Decoded changes that have more than this build understands"},
	{Name: "replica.completed_rows", Kind: Counter, Unit: "{row}", Service: catalog, Labels: []Label{replica},
		Meaning: "Rows that were incomplete and were brought up to date with their owner"},
	{Name: "replica.incomplete_rows", Kind: Gauge, Unit: "{row}", Service: catalog, Labels: []Label{replica},
		Meaning: "Rows that lack a part of their owner's state, as of the last pass, up to 10,000"},
	{Name: "reconcile.rows.checked", Kind: Counter, Unit: "{row}", Service: catalog, Labels: []Label{compared},
		Meaning: "Rows of the owner with which a read model was compared, or counters that were counted again"},
	{Name: "reconcile.rows.differing", Kind: Counter, Unit: "{row}", Service: catalog,
		Labels:  []Label{compared, labelled("kind", "changed", "missing", "extra", "behind", "ahead", "counter")},
		Meaning: "Rows that certainly differed from the owner's, or from what they are computed from, in each check again"},
	{Name: "reconcile.check.age", Kind: Gauge, Unit: "s", Service: catalog, Labels: []Label{compared},
		Meaning: "Time since the end of the last whole check of a projection against its owner, or since the begin of the first one"},
	{Name: "reconcile.rebuild.open", Kind: Gauge, Unit: "{rebuild}", Service: catalog,
		Meaning: "Rebuilds that are not finished: each row is written twice until then"},
}
