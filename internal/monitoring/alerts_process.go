package monitoring

import (
	"strings"

	"example.com/lockstep/internal/topics"
)

var processAlerts = []Alert{
	{Name: "IssuerKeysOld", Severity: Page, For: 300,
		Entry:   "Tokens cannot be verified (503, and `the issuer's keys cannot be fetched` in the log)",
		Expr:    `max by (identity) (auth_keys_age_seconds) > 1800`,
		Summary: "The issuer's keys have not been fetched for half an hour; after an hour every token is refused."},
	{Name: "WritesLocked", Severity: Ticket, For: 0, Entry: "Writes get 503 `LOCKED` (`database_locked_total` grows)",
		Expr:    `sum(increase(database_locked_total[15m])) > 10`,
		Summary: "Another transaction holds rows that requests would change: more than 10 failed in 15 minutes."},
	{Name: "WritesBusy", Severity: Ticket, For: 0, Entry: "Writes get 503 `BUSY` (`database_busy_total` grows)",
		Expr:    `sum(increase(database_busy_total[15m])) > 10`,
		Summary: "The database is slow, does not answer, or has too many writes: more than 10 requests failed in 15 minutes."},
	{Name: "IdempotencyKeysStay", Severity: Ticket, For: 3600,
		Entry:   "Expired idempotency keys stay (`idempotency_expired_keys` does not fall)",
		Expr:    `min(idempotency_expired_keys) > 10000`,
		Summary: "Expired idempotency keys have not been removed for an hour."},
	{Name: "ConnectionsShort", Severity: Ticket, For: 600,
		Entry: "Database connections run short (`database_pool_wait_seconds_total` grows)",
		Expr: perService("wait_seconds") + ` / ` + perService("acquires") + ` > 0.1 or ` +
			perService("canceled_acquires") + ` / (` + perService("acquires") + ` + ` + perService("canceled_acquires") + `) > 0.05`,
		Summary: "A service or worker pool waits 0.1 s on average for a database connection, or one in twenty waits is given up."},
	{Name: "MemoryShort", Severity: Ticket, For: 600, Entry: "Memory runs short (`process_resident_memory_bytes`)",
		Expr:    `max(process_resident_memory_bytes / go_gc_gomemlimit_bytes) > 1`,
		Summary: "A process is above its GOMEMLIMIT: Cloud Run kills it a tenth above that."},
	{Name: "ProcessRestarts", Severity: Page, For: 0, Entry: restarts, NamedInstances: true,
		Expr:    `max(changes(process_start_time_seconds[30m])) > 2`,
		Summary: "A process has started three times within half an hour."},
}

// services are the labels by which the collector's series are told apart. On Cloud Run a series of a
// service has both. A series of a worker pool has no service_name, and its namespace is the pool's
// name. By service_name alone, the workers of video and catalog would be one.
const services = "service_name, namespace"

// perService returns PromQL for the rate of a counter of the connection pools, by service or worker
// pool. A sum over all services would hide a service that waits behind a service that does not.
func perService(counter string) string {
	return `sum by (` + services + `) (rate(database_pool_` + counter + `_total[10m]))`
}

// starts is PromQL for the instances of each service and worker pool that Cloud Run has started
// within half an hour. Cloud Monitoring requires monitored_resource for this metric, and does not
// document whether one matcher may name two resources.
var starts = startsOf("service_name", "cloud_run_revision") + " or " + startsOf("worker_pool_name", "cloud_run_worker_pool")

func startsOf(label, resource string) string {
	return `sum by (` + label + `) (increase(run_googleapis_com:container_startup_latencies_count` +
		`{monitored_resource="` + resource + `"}[30m]))`
}

// subscriptions matches catalog's subscriptions in an expression. Each topic has the name
// AGGREGATE.events.
var subscriptions = `(` + strings.Join(topics.Aggregates(), "|") + `)\\.events\\.` + topics.Catalog

// googleAlerts use metrics of Pub/Sub and Cloud Run. These metrics exist even if no service runs.
var googleAlerts = []Alert{
	{Name: "BacklogOld", Severity: Page, For: 300, Google: true, Entry: heldUp,
		Expr: `max by (subscription_id) (pubsub_googleapis_com:subscription_oldest_unacked_message_age` +
			`{subscription_id=~"` + subscriptions + `"}) > 300`,
		Summary: "catalog is behind: an event has waited in its subscription for five minutes."},
	{Name: "DeadLettersWait", Severity: Ticket, For: 0, Google: true, Entry: deadLetter,
		Expr: `max by (subscription_id) (pubsub_googleapis_com:subscription_num_undelivered_messages` +
			`{subscription_id=~"` + subscriptions + `\\.dlq"}) > 0`,
		Summary: "Dead letters wait: catalog could not apply an event."},
	{Name: "BrokerDeadLetters", Severity: Ticket, For: 0, Google: true, Entry: deadLetter,
		Expr:    `sum by (subscription_id) (increase(pubsub_googleapis_com:subscription_dead_letter_message_count[10m])) > 0`,
		Summary: "Pub/Sub gave up on an event after 100 deliveries; catalog has not seen why."},
	{Name: "AcksExpire", Severity: Ticket, For: 600, Google: true, Entry: "Acknowledgements come too late",
		Expr:    `sum by (subscription_id) (increase(pubsub_googleapis_com:subscription_expired_ack_deadlines_count[10m])) > 100`,
		Summary: "More than 100 messages in ten minutes were not acknowledged in time, and come again."},
	{Name: "InstancesRestart", Severity: Ticket, For: 0, Google: true, Entry: restarts,
		Expr:    `(` + starts + `) > 10`,
		Summary: "More than ten instances of a service or worker pool have started within half an hour."},
}
