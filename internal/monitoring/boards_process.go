package monitoring

// byService is the legend of a query whose lines are services. In the boards of Cloud Monitoring, the
// namespace stands in its place, because a worker pool has no service_name.
const byService = "{{service_name}}"

var processRows = []Row{
	{Title: "Requests", Panels: []Panel{
		{Title: "REST requests, by status", Unit: "{request}/s",
			Means:   "Statuses of 400 and above are faults of callers, those of 500 and above are ours.",
			Queries: one(byService+" {{http_response_status_code}}", perSecond(restCount, services+", http_response_status_code"))},
		{Title: "Time of a REST request", Unit: "s", Means: "A rise of the median means a slow database; one of p99 alone, waits and locks.",
			Queries: quantiles("http_server_request_duration_seconds", services)},
		{Title: "Time of a REST request, by route", Unit: "s",
			Means: "The route that is slow; reads with a token may wait for as long as they ask.",
			Queries: one("p99 {{http_route}}",
				"histogram_quantile(0.99, "+perSecond(`http_server_request_duration_seconds_bucket{http_route!=""}`, "le, http_route")+")")},
		{Title: "gRPC calls, by code", Unit: "{call}/s", Means: "UNAVAILABLE, INTERNAL and UNKNOWN are faults of ours; the others, of callers.",
			Queries: one(byService+" {{rpc_response_status_code}}",
				perSecond("rpc_server_call_duration_seconds_count", services+", rpc_response_status_code"))},
		{Title: "Time of a gRPC call", Unit: "s", Means: "A rise means the same as one of REST requests.",
			Queries: quantiles("rpc_server_call_duration_seconds", services)},
		{Title: "Time of catalog's calls to video", Unit: "s",
			Means:   "A rise means that video answers slowly, and that fallbacks and repairs wait.",
			Queries: quantiles("rpc_client_call_duration_seconds", "rpc_method")},
		{Title: "Requests refused", Unit: "{request}/s",
			Means: "A rise of the first means that users send too many requests; of the second, malformed or unknown calls.",
			Queries: []Query{
				{"limit of a user " + byService, perSecond("requests_limited_total", services)},
				{"gRPC " + byService, perSecond("grpc_refused_total", services)},
			}},
		{Title: "Age of the issuer's keys", Unit: "s", Means: "Above an hour, every token is refused; without an issuer it is 0.",
			Queries: one("{{identity}}", orZero("max by (identity) (auth_keys_age_seconds)"))},
	}},
	{Title: "Database connections", Panels: []Panel{
		{Title: "Wait for a connection", Unit: "s", Means: "A rise means that the pool is too small, or that transactions take long.",
			Queries: one("mean "+byService, perSecond("database_pool_wait_seconds_total", services)+" / "+
				perSecond("database_pool_acquires_total", services))},
		{Title: "Waits for a connection given up", Unit: "{acquire}/s",
			Means:   "The time of requests and loops is over: the pool is far too small, or the database does not answer.",
			Queries: one(byService, perSecond("database_pool_canceled_acquires_total", services))},
		{Title: "Time of an operation", Unit: "s", Means: "A rise of all kinds means a slow database or network.",
			Queries: one("p99 {{pgx_operation_type}}", "histogram_quantile(0.99, "+
				perSecond("db_client_operation_duration_seconds_bucket", "le, pgx_operation_type")+")")},
		{Title: "Operations", Unit: "{operation}/s", Means: "More operations without more requests mean polling or retries.",
			Queries: one(byService+" {{pgx_operation_type}}",
				perSecond("db_client_operation_duration_seconds_count", services+", pgx_operation_type"))},
	}},
	{Title: "Process", Panels: []Panel{
		{Title: "Memory", Unit: "By", Means: "A rise without more load is a leak; Cloud Run kills a process above its limit.",
			Queries: one("{{instance}}", "max by (instance) (process_resident_memory_bytes)")},
		{Title: "Memory as a share of GOMEMLIMIT", Unit: "1",
			Means:   "Above 1 the garbage collector takes all processors; without a limit it is 0.",
			Queries: one("{{instance}}", "max by (instance) (process_resident_memory_bytes / go_gc_gomemlimit_bytes)")},
		{Title: "Processors used", Unit: "{cpu}", Means: "At the number of processors that the instance has, everything waits.",
			Queries: one("{{instance}}", perSecond("process_cpu_seconds_total", "instance"))},
		{Title: "Goroutines", Unit: "{goroutine}", Means: "A rise without more requests is a leak.",
			Queries: one("{{instance}}", "max by (instance) (go_goroutines)")},
		{Title: "Open files and connections", Unit: "{file}", Means: "A rise without more requests is a leak.",
			Queries: one("{{instance}}", "max by (instance) (process_open_fds)")},
		{Title: "Starts of processes", Unit: "{start}",
			Means:   "Several in half an hour: a process dies again and again; each is a new instance on Cloud Run, and the line stays at 0.",
			Queries: one(byService, "sum by ("+services+") (changes(process_start_time_seconds[30m]))")},
		{Title: "Versions", Unit: "{process}", Means: "Two versions of a service run together during a release, and only then.",
			Queries: one("{{service_version}}", "count by (service_version) (target_info)")},
	}},
}

const googleSubscription = "pubsub_googleapis_com:subscription_"

var pubsubRows = []Row{
	{Title: "Subscriptions", Panels: []Panel{
		{Title: "Oldest event that waits", Unit: "s", Means: "A rise means that catalog is behind, or does not run.",
			Queries: one("{{subscription_id}}", "max by (subscription_id) ("+googleSubscription+"oldest_unacked_message_age)")},
		{Title: "Events that wait", Unit: "{message}",
			Means:   "A rise means that catalog applies fewer events than arrive; on a dead-letter subscription, that events need a person.",
			Queries: one("{{subscription_id}}", "max by (subscription_id) ("+googleSubscription+"num_undelivered_messages)")},
		{Title: "Acknowledged", Unit: "{message}/s", Means: "The rate at which catalog finishes messages.",
			Queries: one("{{subscription_id}}", perSecond(googleSubscription+"ack_message_count", "subscription_id"))},
		{Title: "Acknowledged too late", Unit: "{message}/s", Means: "A rise means that messages come again since their transactions take long.",
			Queries: one("{{subscription_id}}", perSecond(googleSubscription+"expired_ack_deadlines_count", "subscription_id"))},
		{Title: "Dead-lettered by Pub/Sub", Unit: "{message}/s",
			Means:   "A rise means that Pub/Sub gave up after 100 deliveries; catalog has not seen why.",
			Queries: one("{{subscription_id}}", perSecond(googleSubscription+"dead_letter_message_count", "subscription_id"))},
		{Title: "REST requests that fail (5xx)", Unit: "{request}/s",
			Means:   "A rise is a fault of the service or of what it depends on; an error over gRPC is not counted here.",
			Queries: one("{{service_name}}", perSecond(`run_googleapis_com:request_count{response_code_class="5xx"}`, "service_name"))},
		{Title: "Starts of instances", Unit: "{start}", Means: "Many within half an hour mean that instances die again and again.",
			Queries: one("{{service_name}}{{worker_pool_name}}", starts)},
	}},
}
