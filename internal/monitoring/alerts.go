package monitoring

import (
	"fmt"
	"slices"

	"example.com/lockstep/internal/topics"
)

// Alerts are all alerts on metrics, symptoms first. No window is longer than a day, which is the
// longest range that Cloud Monitoring evaluates for an alert.
var Alerts = slices.Concat(objectiveAlerts, outboxAlerts, inboxAlerts, readModelAlerts, processAlerts, googleAlerts)

// budget is the share of reads, and the share of events, that may miss the objective. The other
// 99.9 % must meet the objective.
const budget = 0.001

// An objective is a promise about things such as reads: at most a share of budget of them is bad. bad and all
// are PromQL expressions that count the bad things and all things in a window. In both, %s stands for the
// window.
type objective struct{ bad, all string }

var (
	fresh = objective{
		bad: `sum(increase(consistency_reads_total{outcome=~"failed|stale"}[%s]))`,
		all: `sum(increase(consistency_reads_total[%s]))`,
	}
	// Prometheus 3 writes the bound of 5 s as 5.0.
	visible = objective{
		bad: `(sum(increase(inbox_event_age_at_apply_seconds_count[%[1]s])) - ` +
			`sum(increase(inbox_event_age_at_apply_seconds_bucket{le=~"5(\\.0)?"}[%[1]s])))`,
		all: `sum(increase(inbox_event_age_at_apply_seconds_count[%s]))`,
	}
)

// burns returns PromQL that holds while the share of bad things is above rate times the budget, in
// the long window and in the short window. At a rate of 1 the budget lasts for 30 days. The short
// window makes the alert end soon after the fault. Fewer than ten bad things in the long window
// raise no alert, however few things there are in all.
func (o objective) burns(rate float64, long, short string) string {
	over := func(window string) string {
		return fmt.Sprintf("%s / %s > %.4f", fmt.Sprintf(o.bad, window), fmt.Sprintf(o.all, window), rate*budget)
	}
	return fmt.Sprintf("(%s and %s and %s >= 10)", over(long), over(short), fmt.Sprintf(o.bad, long))
}

// fast returns PromQL that holds if 2 % of the month's budget is spent in an hour, or 5 % in six hours. fast
// and slow use the multi-window burn rates of Google's SRE workbook.
func (o objective) fast() string {
	return o.burns(14.4, "1h", "5m") + " or " + o.burns(6, "6h", "30m")
}

// slow returns PromQL that holds if 10 % of the month's budget is spent in a day.
func (o objective) slow() string { return o.burns(3, "1d", "2h") }

const (
	staleReads = "Fresh reads fail (`consistency_reads_total{outcome=\"failed\"}` grows)"
	lateEvents = "Events become visible late (`inbox_event_age_at_apply_seconds`)"
	lateCanary = "The canary is late (`canary_visible_seconds`)"
	notLeaving = "Events are not leaving (`outbox_oldest_pending_age_seconds` grows)"
	noMetrics  = "A service shows no metrics"
	differs    = "The read model differs from its owner (`reconcile_rows_differing_total` grows)"
	heldUp     = "The consumer is held up (`inbox_failures_in_a_row` above 0)"
	deadLetter = "Dead letters (`inbox_dead_letters_total` grows)"
	restarts   = "A service starts again and again"
)

var objectiveAlerts = []Alert{
	{Name: "FreshnessBurnsFast", Severity: Page, For: 120, Expr: fresh.fast(), Entry: staleReads,
		Summary: "Many reads with a token fail or are stale: the month's budget of 0.1 % lasts for less than five days."},
	{Name: "FreshnessBurnsSlowly", Severity: Ticket, For: 900, Expr: fresh.slow(), Entry: staleReads,
		Summary: "Reads with a token fail or are stale three times as often as 99.9 % allow."},
	{Name: "VisibilityBurnsFast", Severity: Page, For: 120, Expr: visible.fast(), Entry: lateEvents,
		Summary: "Many events become visible later than 5 s after their commit: the month's budget of 0.1 % lasts for less than five days."},
	{Name: "VisibilityBurnsSlowly", Severity: Ticket, For: 900, Expr: visible.slow(), Entry: lateEvents,
		Summary: "Events become visible later than 5 s after their commit three times as often as 99.9 % allow."},
	{Name: "RequestsFail", Severity: Page, For: 300, Entry: "Requests fail (5xx)",
		Expr: failing("http_server_request_duration_seconds_count", `http_response_status_code=~"5.."`) + " or " +
			failing("rpc_server_call_duration_seconds_count",
				`rpc_response_status_code=~"UNKNOWN|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|DATA_LOSS"`),
		// An error over gRPC is HTTP 200, and not in this count.
		Instead: failing("run_googleapis_com:request_count", `response_code_class="5xx"`),
		Summary: "More than 5 % of the requests fail, over REST or over gRPC."},
	{Name: "CanaryLate", Severity: Page, For: 300, Entry: lateCanary,
		Expr: `histogram_quantile(0.5, sum by (le) (rate(canary_visible_seconds_bucket[10m]))) > 5 or ` +
			`(sum(increase(canary_commits_total[10m])) > 0 unless sum(increase(canary_visible_seconds_count[10m])) > 0)`,
		Summary: "Half of the canary's versions become visible later than 5 s after their commit, or none at all for ten minutes."},
	{Name: "CanaryStopped", Severity: Ticket, For: 300, Entry: lateCanary,
		Expr:    `sum(increase(canary_commits_total[10m])) == 0`,
		Summary: "video has committed no version of the canary for ten minutes."},
}

// failing returns PromQL that holds while more than a twentieth of the requests fail, and at least
// ten requests fail. REST and gRPC have an expression each. In one common expression, a metric that
// does not exist yet would hide the failures of the other protocol.
func failing(count, failures string) string {
	failed := fmt.Sprintf(`sum(increase(%s{%s}[5m]))`, count, failures)
	return fmt.Sprintf(`(%[1]s / sum(increase(%[2]s[5m])) > 0.05 and %[1]s >= 10)`, failed, count)
}

var outboxAlerts = []Alert{
	{Name: "EventsNotLeaving", Severity: Page, For: 120, Entry: notLeaving,
		Expr:    `max(outbox_oldest_pending_age_seconds) > 60`,
		Summary: "An event has waited in video's outbox for more than a minute."},
	{Name: "BacklogUnknown", Severity: Ticket, For: 900, Entry: notLeaving,
		Expr:    `min(outbox_backlog_known) < 1`,
		Summary: "A relay has not been able to read its backlog for 15 minutes."},
	{Name: "TopicPaused", Severity: Page, For: 120, Entry: "A topic is paused (`outbox_topics_paused` at 1)",
		Expr:    `max by (topic) (outbox_topics_paused) > 0`,
		Summary: "video publishes nothing but probes to a topic."},
	{Name: "EventsParked", Severity: Ticket, For: 0, Entry: "Events are parked (`outbox_parked` above 0)",
		Expr:    `max(outbox_parked) > 0`,
		Summary: "Pub/Sub has refused an event for good; the later events of its aggregate wait."},
	{Name: "PublishesRefused", Severity: Ticket, For: 0,
		Entry:   "Publishes are refused (`outbox_publish_failures_total{kind=\"rejection\"}` grows)",
		Expr:    `sum by (code) (increase(outbox_publish_failures_total{kind="rejection"}[15m])) > 0`,
		Summary: "Pub/Sub refuses an event; at the fifth time it is parked."},
	{Name: "TenantsHeld", Severity: Ticket, For: 3600, Entry: "Tenants wait for turns (`outbox_tenants_held` above 0 for long)",
		Expr:    `max(outbox_tenants_held) > 0`,
		Summary: "A tenant has been above its rate or its share, or behind, for an hour while others write."},
	{Name: "LeasesLost", Severity: Ticket, For: 0, Entry: "Leases are lost (`outbox_leases_lost_total` grows)",
		Expr:    `sum(increase(outbox_leases_lost_total[30m])) > 20`,
		Summary: "Relays are overtaken while they publish: more than 20 leases in half an hour."},
	{Name: "RelayMissing", Severity: Page, For: 600, Entry: noMetrics,
		Expr:    `absent(outbox_oldest_pending_age_seconds)`,
		Summary: "No instance of video shows metrics: none runs, or nothing collects them."},
}

var inboxAlerts = []Alert{
	{Name: "ConsumerHeldUp", Severity: Page, For: 120, Entry: heldUp,
		Expr: `max by (subscription) (inbox_failures_in_a_row) > 0 or ` +
			`max by (subscription) (inbox_blocked_aggregates{reason="lacking"}) > 0`,
		Summary: "catalog's database does not take the transactions of a consumer."},
	{Name: "SubscriptionRefused", Severity: Page, For: 120, Entry: "A subscription cannot be pulled (`inbox_pull_failures_in_a_row` above 0)",
		Expr:    `max by (subscription) (inbox_pull_failures_in_a_row) > 0`,
		Summary: "catalog receives nothing: Pub/Sub is away, the subscription is missing, or catalog may not pull it."},
	{Name: "AggregatesBlocked", Severity: Ticket, For: 600,
		Entry:   "Aggregates are blocked (`inbox_blocked_aggregates` above 0 for minutes)",
		Expr:    `max by (subscription, reason) (inbox_blocked_aggregates{reason!="gap"}) > 0`,
		Summary: "An aggregate of catalog has not gone on for ten minutes."},
	{Name: "GapsOpen", Severity: Ticket, For: 600, Entry: "Gaps stay open (`inbox_gaps_open` above 0 for minutes)",
		Expr:    `max by (subscription) (inbox_gaps_open) > 0`,
		Summary: "catalog misses events, and has not got their state from video for ten minutes."},
	{Name: "DeadLetters", Severity: Ticket, For: 0, Entry: deadLetter,
		Expr:    `sum by (subscription) (increase(inbox_dead_letters_total[15m])) > 0`,
		Summary: "catalog could not apply an event, and has dead-lettered it."},
	{Name: "CheckpointStands", Severity: Ticket, For: 300,
		Entry: "The checkpoint stands still (`catalog_engagement_offset_failure_total` grows)",
		Expr: `(sum(increase(catalog_engagement_offset_failure_total[10m])) > 0 or ` +
			`sum(increase(inbox_events_total{subscription="` + topics.Subscription(topics.Engagement, topics.Catalog) +
			`",outcome="applied"}[10m])) > 0) ` +
			`unless sum(increase(catalog_engagement_offset_save_total[10m])) > 0`,
		Summary: "Engagements arrive, and their consumer's offset is not saved."},
	{Name: "ConsumerMissing", Severity: Page, For: 600, Entry: noMetrics,
		Expr:    `absent(inbox_in_flight_messages)`,
		Summary: "No instance of catalog shows metrics: none runs, or nothing collects them."},
}

var readModelAlerts = []Alert{
	{Name: "OwnerLostCommits", Severity: Page, For: 0, Entry: "The read model diverged from its owner (`replica_divergences_total` grows)",
		Expr: `sum(increase(inbox_events_total{outcome=~"diverged|lost"}[15m])) > 0 or ` +
			`sum(increase(replica_divergences_total[15m])) > 0`,
		Summary: "video has lost commits that it had confirmed; catalog repairs itself."},
	{Name: "DriftFound", Severity: Ticket, For: 0, Entry: differs,
		Expr:    `sum by (aggregate_type, kind) (increase(reconcile_rows_differing_total[1h])) > 0`,
		Summary: "catalog's daily check has found rows that differ from video's."},
	{Name: "DriftNotChecked", Severity: Ticket, For: 3600, Entry: differs,
		Expr:    `min by (aggregate_type) (reconcile_check_age_seconds) > 172800`,
		Summary: "The read model has not been compared with its owner for two days."},
	{Name: "RowsIncomplete", Severity: Ticket, For: 1800, Entry: "Rows are incomplete (`replica_incomplete_rows` above 0)",
		Expr:    `max by (aggregate_type) (replica_incomplete_rows) > 0`,
		Summary: "catalog is older than the events that it applies, and has been for half an hour."},
	{Name: "RebuildOpen", Severity: Ticket, For: 43200, Entry: "The read model is wrong as a whole",
		Expr:    `max(reconcile_rebuild_open) > 0`,
		Summary: "A rebuild has been open for twelve hours: each row is written twice until it is finished."},
}
