package monitoring

var canaryMetrics = []Metric{
	{Name: "canary.commits", Kind: Counter, Unit: "{commit}", Service: video, Seldom: "with -canary-interval",
		Meaning: "Versions of the canary that this instance has committed; with several instances one of them commits each"},
	{Name: "canary.visible", Kind: Histogram, Unit: "s", Service: catalog, Seldom: "with a canary of video",
		Meaning: "Time of a version of the canary from its occurred_at, just before video's commit, to the commit that shows it"},
}

var requestMetrics = []Metric{
	{Name: "hook.dropped_calls", Kind: Counter, Unit: "{call}", Service: both,
		Labels:  []Label{labelled("hook", "OnRefused", "OnPaused", "OnDeadLetter", "OnDiverged")},
		Meaning: "Calls of a user's function that were not made: it is too slow, or had not returned when the process ended"},
	{Name: "consistency.reads", Kind: Counter, Unit: "{read}", Service: catalog,
		Labels:  []Label{labelled("outcome", "fresh", "waited", "authority", "stale", "failed")},
		Meaning: "Reads that asked for freshness, by outcome: fresh, waited, authority, stale or failed"},
	{Name: "consistency.questions", Kind: Counter, Unit: "{question}", Service: catalog,
		Labels:  []Label{labelled("result", "answered", "away", "refused")},
		Meaning: "Readers' questions to the owner, by result: answered, away, or refused by the circuit"},
	{Name: "consistency.waiters", Kind: Gauge, Unit: "{reader}", Service: catalog,
		Meaning: "Readers that wait for the copy just now"},
	{Name: "consistency.wait", Kind: Histogram, Unit: "s", Service: catalog, Labels: []Label{labelled("reached", "true", "false")},
		Meaning: "Time that a reader waited for the copy, by whether it was reached"},
	{Name: "db.client.operation.errors", Kind: Counter, Unit: "{error}", Service: both, Labels: operations,
		Meaning: "Operations of database connections that failed"},
	{Name: "database.locked", Kind: Counter, Unit: "{request}", Service: both,
		Meaning: "Requests that failed since another transaction held what they would change"},
	{Name: "database.busy", Kind: Counter, Unit: "{request}", Service: both,
		Meaning: "Requests that failed since the writes before them took too long, and met no lock"},
	{Name: "database.pool.acquires", Kind: Counter, Unit: "{acquire}", Service: both,
		Meaning: "Waits for a database connection that ended with one"},
	{Name: "database.pool.canceled_acquires", Kind: Counter, Unit: "{acquire}", Service: both,
		Meaning: "Waits that were given up, because the time of the request or the loop was over; a refused connection is not counted"},
	{Name: "database.pool.wait", Kind: Counter, Unit: "s", Service: both,
		Meaning: "Time of all waits that ended with a connection"},
	{Name: "idempotency.expired_keys", Kind: Gauge, Unit: "{key}", Service: video,
		Meaning: "Expired idempotency keys that the sweep had left when it was last through, 100,000 at most"},
	{Name: "grpc.refused", Kind: Counter, Unit: "{request}", Service: both, Labels: []Label{code},
		Meaning: "gRPC requests that were answered before a handler saw them: " +
			"unknown method, compressed, too large, malformed, not for this caller."},
	{Name: "requests.limited", Kind: Counter, Unit: "{request}", Service: both,
		Meaning: "Requests over REST and gRPC that were refused because their user had sent too many, or had too many under way."},
	{Name: "auth.keys.age", Kind: Gauge, Unit: "s", Service: both, Labels: []Label{labelled("identity", "users", "services")},
		Meaning: "Time since the keys of the issuer were fetched; without keys, since the start.",
		Seldom:  "where tokens are verified"},
}

var (
	http = []Label{
		{Name: "http_request_method", Bound: "the methods of HTTP, or _OTHER"},
		{Name: "http_response_status_code", Bound: "the statuses of HTTP"},
		{Name: "http_route", Bound: "the routes of the service, 8 at most; unknown paths have none"},
		{Name: "network_protocol_version", Bound: "versions of HTTP, 3"},
		{Name: "url_scheme", Values: []string{"http", "https"}},
		{Name: "error_type", Bound: "the statuses of HTTP from 500; others have none"},
	}
	operations = []Label{
		labelled("db_system_name", "postgresql"),
		labelled("pgx_operation_type", "batch", "connect", "prepare", "query"),
	}
	rpc = []Label{
		{Name: "rpc_method", Bound: "the methods of the service, or _OTHER"},
		{Name: "rpc_response_status_code", Bound: "gRPC's codes, 17"},
		labelled("rpc_system_name", "grpc"),
		{Name: "error_type", Bound: "gRPC's codes, 17"},
	}
)

// libraryMetrics are metrics of OpenTelemetry's instrumentation and of Prometheus's client. All
// other metrics of that client begin with go_, process_ or promhttp_.
var libraryMetrics = []Metric{
	{Name: "http.server.request.duration", Kind: Histogram, Unit: "s", Service: both, Maker: "semconv", Labels: http,
		Meaning: "Time to answer a REST request"},
	{Name: "rpc.server.call.duration", Kind: Histogram, Unit: "s", Service: both, Maker: "otelgrpc", Labels: rpc,
		Meaning: "Time to answer a gRPC call", Seldom: "after a gRPC call"},
	{Name: "rpc.client.call.duration", Kind: Histogram, Unit: "s", Service: catalog, Maker: "otelgrpc", Labels: rpc,
		Meaning: "Time of a gRPC call of catalog to video", Seldom: "after a gRPC call"},
	{Name: "db.client.operation.duration", Kind: Histogram, Unit: "s", Service: both, Maker: "semconv", Labels: operations,
		Meaning: "Time of an operation of a database connection"},
	{Name: "target_info", Kind: Gauge, Service: both, Maker: "OpenTelemetry",
		Labels: []Label{
			labelled("service_name", "video", "catalog"), {Name: "service_version", Bound: "one for each build"},
			{Name: "service_instance_id", Bound: "one for each process"}, {Name: "faas_version", Bound: "one for each revision of Cloud Run"},
			labelled("telemetry_sdk_language", "go"), labelled("telemetry_sdk_name", "opentelemetry"),
			{Name: "telemetry_sdk_version", Bound: "one for each build"},
		},
		Meaning: "1, with the service, its version and its instance as labels"},
	{Name: "process_start_time_seconds", Kind: Gauge, Service: both, Maker: "client_golang",
		Meaning: "Time of the process's start, in seconds since 1970"},
	{Name: "process_resident_memory_bytes", Kind: Gauge, Service: both, Maker: "client_golang",
		Meaning: "Memory that the process has now"},
	{Name: "process_cpu_seconds_total", Kind: Counter, Service: both, Maker: "client_golang",
		Meaning: "Time of processors that the process has used, in seconds"},
	{Name: "process_open_fds", Kind: Gauge, Service: both, Maker: "client_golang",
		Meaning: "Files and connections that the process has open"},
	{Name: "go_goroutines", Kind: Gauge, Service: both, Maker: "client_golang",
		Meaning: "Goroutines that the process has"},
	{Name: "go_gc_gomemlimit_bytes", Kind: Gauge, Service: both, Maker: "client_golang",
		Meaning: "GOMEMLIMIT, nine tenths of the container's memory on Cloud Run; without it, 2^63"},
}

var onSubscription = []Label{{Name: "subscription_id", Bound: "the subscriptions, 4"}}

// googleMetrics are named as in Cloud Monitoring's PromQL.
var googleMetrics = []Metric{
	{Name: "pubsub_googleapis_com:subscription_oldest_unacked_message_age", Kind: Gauge, Maker: "Google Cloud", Labels: onSubscription,
		Meaning: "Age of the oldest message that is not acknowledged, in seconds"},
	{Name: "pubsub_googleapis_com:subscription_num_undelivered_messages", Kind: Gauge, Maker: "Google Cloud", Labels: onSubscription,
		Meaning: "Messages that are not acknowledged"},
	{Name: "pubsub_googleapis_com:subscription_dead_letter_message_count", Kind: Gauge, Maker: "Google Cloud", Labels: onSubscription,
		Meaning: "Messages that Pub/Sub itself has dead-lettered"},
	{Name: "pubsub_googleapis_com:subscription_ack_message_count", Kind: Gauge, Maker: "Google Cloud", Labels: onSubscription,
		Meaning: "Messages that were acknowledged"},
	{Name: "pubsub_googleapis_com:subscription_expired_ack_deadlines_count", Kind: Gauge, Maker: "Google Cloud", Labels: onSubscription,
		Meaning: "Messages that were not acknowledged in time, and come again"},
	{Name: "run_googleapis_com:request_count", Kind: Gauge, Maker: "Google Cloud",
		Labels:  []Label{{Name: "service_name", Bound: "the services, 2"}, labelled("response_code_class", "2xx", "3xx", "4xx", "5xx")},
		Meaning: "Requests that an instance has answered, or Cloud Run itself"},
	{Name: "run_googleapis_com:container_startup_latencies", Kind: Histogram, Maker: "Google Cloud",
		Labels:  []Label{{Name: "service_name", Bound: "the services, 2"}, {Name: "worker_pool_name", Bound: "the worker pools, 2"}},
		Meaning: "Times in which an instance of Cloud Run started; its count is the number of starts"},
}
