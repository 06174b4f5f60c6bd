package main

import "example.com/lockstep/internal/topics"

// eventsParked is the complete text of an alert in alerts.json.
const eventsParked = `  "EventsParked": {
    "expr": "max(outbox_parked) > 0",
    "for": 0,
    "severity": "ticket",
    "summary": "Pub/Sub has refused an event for good; the later events of its aggregate wait.",
    "anchor": "#events-are-parked-outbox_parked-above-0",
    "google": false
  },
`

// serviceDir is the folder of the local module that both services call.
const serviceDir = "modules/service/"

const callsVideo = "google_cloud_run_v2_service_iam_member"

// wrongRuns are mistakes in the programs that run, and in their permissions.
var wrongRuns = []mutant{
	{"CPU only during requests", []edit{{file: serviceDir + "service.tf", old: "cpu_idle          = false", new: "cpu_idle          = true"}}},
	{"no instance at rest", []edit{{
		file: serviceDir + "service.tf", old: "min_instance_count = var.settings.min_instances", new: "min_instance_count = 0",
	}}},
	{"the service agent's grant is missing", []edit{
		{file: "pubsub.tf", in: `resource "google_pubsub_subscription_iam_member" "agent_acknowledges" {`},
	}},
	{"a dead-letter topic without a subscription", []edit{
		{
			file: "pubsub.tf", in: `resource "google_pubsub_subscription" "dead_letters" {`,
			old: "for_each = local.topics", new: `for_each = toset(["` + topics.Video + `"])`,
		},
		{
			file: "catalog.tf", in: `resource "google_pubsub_subscription_iam_member" "catalog_reads_dead_letters" {`,
			old: "for_each = local.topics", new: `for_each = toset(["` + topics.Video + `"])`,
		},
	}},
	{"ordering off", []edit{{file: "pubsub.tf", old: "enable_message_ordering      = true", new: "enable_message_ordering      = false"}}},
	{"publisher on the project instead of the topic", []edit{
		{
			file: "video.tf", in: `resource "google_pubsub_topic_iam_member" "video_publishes" {`,
			new: `resource "google_project_iam_member" "video_publishes" {
  project = var.project_id
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${module.video.account.email}"
}
`,
		},
		{file: "video.tf", old: "    google_pubsub_topic_iam_member.video_publishes,",
			new: "    google_project_iam_member.video_publishes,"},
	}},
	{"publisher on the project in addition", []edit{{
		file: "video.tf", old: "# The schedule of the drain", new: `resource "google_project_iam_member" "video" {
  project = var.project_id
  role    = "roles/pubsub.publisher"
  member  = "serviceAccount:${module.video.account.email}"
}

# The schedule of the drain`,
	}}},
	{"a secret in the plain environment", []edit{
		{file: serviceDir + "service.tf", old: `{ DATABASE_URL = "${var.name}-database-url" },`, new: "{},"},
		{file: "video.tf", old: "    LOG_LEVEL            = var.log_level", new: `    LOG_LEVEL            = var.log_level
    DATABASE_URL         = "postgres://video_service:secret@db.example.com/video"`},
	}},
	{"an image by tag", []edit{{
		file: serviceDir + "service.tf", in: `resource "google_cloud_run_v2_service" "service" {`,
		old: "image = var.settings.image", new: `image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog:latest"`,
	}}},
	{"digests of any form are accepted", []edit{{
		file: "variables_services.tf", old: `"@sha256:[0-9a-f]{64}$", var.video.image`, new: `".", var.video.image`,
	}}},
	{"a subscription that expires", []edit{{
		file: "pubsub.tf", in: `resource "google_pubsub_subscription" "catalog" {`, old: `ttl = "" #`, new: `ttl = "2678400s" #`,
	}}},
	{"a retention shorter than the outbox's", []edit{{
		file: "pubsub.tf", in: `resource "google_pubsub_subscription" "catalog" {`,
		old: "message_retention_duration   = local.retention", new: `message_retention_duration   = "3600s"`,
	}}},
	{"an inbox with a shorter retention than the subscription", []edit{{
		file: "pubsub.tf", old: "inbox_retention_days = 32", new: "inbox_retention_days = 5",
	}}},
	{"a longer retention than the inbox has", []edit{{file: "pubsub.tf", old: "inbox_retention_days = 32",
		new: "inbox_retention_days = 90"}}},
	{"a wrong port name", []edit{{file: serviceDir + "service.tf", old: `name           = "h2c"`, new: `name           = "http1"`}}},
	{"the global Pub/Sub endpoint", []edit{{
		file: "pubsub.tf", old: `"${var.region}-pubsub.googleapis.com:443"`, new: `"pubsub.googleapis.com:443"`,
	}}},
	{"catalog may not call video", []edit{
		{file: "catalog.tf", in: `resource "` + callsVideo + `" "catalog_calls_video" {`},
	}},
	{"the writer before the reader", []edit{
		{file: "video.tf", old: "    module.catalog.service,\n    module.catalog.workers,\n"},
		{file: "catalog.tf", old: `"${local.video_host}:443"`,
			new: `"${trimprefix(module.video.service.uri, "https://")}:443"`},
	}},
	{"a comparison of retentions before its permission", []edit{{
		file: "catalog.tf", old: "    google_pubsub_subscription_iam_member.catalog_views_subscription,\n",
	}}},
	{"the writer before the reader's workers", []edit{{file: "video.tf", old: "    module.catalog.workers,\n"}}},
	{"the reader before its schema", []edit{
		{file: serviceDir + "service.tf", old: "    google_cloud_run_v2_job.migrate,\n"},
		{file: serviceDir + "service.tf", old: "terraform_data.migration.id", new: `"now"`},
	}},
	{"an address that is not the audience", []edit{{file: "video.tf", old: `custom_audiences = ["https://${local.video_host}"]`,
		new: `custom_audiences = ["https://video"]`}}},
	{"Terraform gives up before a migration does", []edit{{file: serviceDir + "jobs.tf", old: `update = "30m"`, new: `update = "20m"`}}},
	{"a database that is deleted under its sessions", []edit{{
		file: "database.tf", old: `deletion_policy = "ABANDON"`, new: `deletion_policy = "DELETE"`,
	}}},
	{"an incident that hides the next", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "jobs" {`, old: `auto_close = "1800s"`,
		new: `auto_close = "604800s"`,
	}}},
	{"a metric of our own that does not exist yet", []edit{{
		file: "alerts.tf", old: "disable_metric_validation = true", new: "disable_metric_validation = false",
	}}},
	{"an alert that is gone", []edit{{file: "alerts.json", old: eventsParked}}},
	{"an alert that does not fire", []edit{{file: "alerts.json", old: "max(outbox_oldest_pending_age_seconds) > 60",
		new: "max(outbox_oldest_pending_age_seconds) > 60000"}}},
	{"an alert without an entry of the runbook", []edit{{file: runbook, old: "\n## Gaps stay open (", new: "\n## Gaps ("}}},
	{"alerts on metrics that nothing collects", []edit{{
		file: "alerts.tf", old: "(alert.google || local.collected || can(alert.instead)) && ", new: "",
	}}},
	{"boards on metrics that nothing collects", []edit{{file: "dashboards.tf", old: "board.google || local.collected", new: "true"}}},
	{"no boards", []edit{{file: "dashboards.tf", old: "board.google || local.collected", new: "board.google"}}},
	{"a panel that asks otherwise", []edit{{file: "boards.json", old: "count by (service_version) (target_info)",
		new: "count(target_info)"}}},
	{"a collector without a grant", []edit{{file: "collector.tf", old: "for_each = local.collected ?", new: "for_each = !local.collected ?"}}},
	{"a pool that the collector replaces", []edit{{
		file: serviceDir + "workers.tf", old: "        image = containers.value\n",
		new: "        image = containers.value\n        depends_on = [var.name]\n",
	}}},
	{"a log without the line of its alert", []edit{{
		file: "variables.tf", old: `var.log_level != "error" || var.metrics_sidecar_image != ""`,
		new: `var.log_level != "" || var.metrics_sidecar_image != ""`,
	}}},
	{"a machine type of MySQL", []edit{{
		file: "variables_database.tf", old: `"^db-custom-[0-9]+-[0-9]+$"`, new: `"^db-"`,
	}}},
	{"a machine with a shared CPU", []edit{{
		file: "variables_database.tf", old: `"^db-custom-[0-9]+-[0-9]+$"`, new: `"^db-(custom-[0-9]+-[0-9]+|g1-small)$"`,
	}}},
	{"drains that overlap", []edit{{file: "variables_services.tf", old: `\\*/([5-9]|`, new: `\\*|\\*/([1-9]|`}}},
	{"a collector that starts first", []edit{{file: serviceDir + "service.tf", old: "        depends_on = [var.name] #", new: "        #"}}},
	{"pages that go where tickets go", []edit{{file: "alerts.tf", old: "page   = var.notification_channels",
		new: "page   = coalesce(var.ticket_channels, var.notification_channels)"}}},
	{"any image as the collector", []edit{{file: "variables_monitoring.tf",
		old: `"^[a-z0-9.-]+/[^@]+@sha256:[0-9a-f]{64}$", var.metrics_sidecar_image`,
		new: `".", var.metrics_sidecar_image`}}},
	{"a variable of the module from outside", []edit{{file: "variables_services.tf", in: `variable "video" {`,
		old: `"^OTEL_[A-Z0-9_]+$"`, new: `""`}}},
	{"a drain that stops, without an alert", []edit{{file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "drain" {`}}},
	{"a drain that is rarer than its alert needs", []edit{{
		file: "variables_services.tf", old: `(,[0-5]?[0-9])*)( \\*){4}$"`, new: `(,[0-5]?[0-9])*)( \\S+){4}$"`,
	}}},
	{"a minute that there is not", []edit{{file: "variables_services.tf", old: "|[0-5]?[0-9](,", new: "|[0-9]+(,"}}},
	{"a part of an instance", []edit{{
		file: "variables_services.tf", in: `variable "catalog" {`, old: "floor(count) == count", new: "count >= 0",
	}}},
	{"a part of a connection", []edit{{file: "variables_database.tf", old: "floor(count) == count", new: "count >= 0"}}},
	{"memory that does not go with the CPU", []edit{{file: "variables_services.tf", old: `"4" = [2048, 16384]`, new: `"4" = [512, 16384]`}}},
	{"anyone may write", []edit{{
		file: serviceDir + "service.tf", old: "for_each = var.settings.public ?", new: "for_each = !var.settings.public ?",
	}}},
	{"anyone may read by default", []edit{{
		file: "variables_services.tf", in: `variable "catalog" {`, old: "public              = optional(bool, false)",
		new: "public = optional(bool, true)",
	}}},
	{"a publish through any region", []edit{{
		file: "pubsub.tf", in: `resource "google_pubsub_topic" "events" {`, old: "enforce_in_transit          = true",
		new: "enforce_in_transit          = false",
	}}},
	{"more waiters than an instance takes requests", []edit{{file: "catalog.tf", old: "floor(var.catalog.concurrency / 2)",
		new: "10000"}}},
	{"a limit of waiters that does not follow the concurrency", []edit{{
		file: "catalog.tf", old: "floor(var.catalog.concurrency / 2)", new: "500",
	}}},
	{"a garbage collector that does not know the limit", []edit{{
		file: serviceDir + "service.tf", old: "merge(var.env, { GOMEMLIMIT = local.memory_limit.service })", new: "var.env",
	}}},
	{"all of the memory for Go", []edit{{file: serviceDir + "service.tf", old: "floor(0.9 * ", new: "floor(1.0 * "}}},
	{"a revision without traffic that grows", []edit{{
		file: serviceDir + "service.tf", old: "      max_instance_count = var.settings.max_instances\n    }\n\n    containers",
		new: "    }\n\n    containers",
	}}},
	{"a migration that runs again by itself", []edit{{
		file: serviceDir + "jobs.tf", in: `resource "google_cloud_run_v2_job" "migrate" {`, old: "max_retries           = 0      #",
		new: "max_retries           = 3      #",
	}}},
	{"the latest version of a secret", []edit{{
		file: serviceDir + "service.tf", old: `lookup(var.deployment.secret_versions, env.value, "1")`,
		new: `lookup(var.deployment.secret_versions, env.value, "latest")`,
	}}},
	{"a disk without a limit", []edit{{file: "database.tf", old: "    disk_autoresize_limit       = local.disk_limit_gb\n"}}},
	{"connections without an alert", []edit{{file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "connections" {`}}},
	{"transaction ids without an alert", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "transaction_ids" {`,
	}}},
	{"a container killed for its memory, without an alert", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "memory" {`,
	}}},
	{"an alert without the address of its entry", []edit{{
		file: "monitoring.tf", old: "Runbook: ${var.runbook_url}#the-outbox-grows", new: "See the runbook.",
	}}},
	{"a canary that no instance knows", []edit{{file: "video.tf", old: `["-canary-interval=${var.video.canary_seconds}s"]`, new: "[]"}}},
	{"a disk without an alert", []edit{{file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "disk" {`}}},
	{"backups in another region", []edit{{
		file: "database.tf", old: "location                       = var.region", new: `location                       = "eu"`,
	}}},
	{"dead letters of the broker without an alert", []edit{{
		file: "alerts.json", old: "(pubsub_googleapis_com:subscription_dead_letter_message_count[10m])",
		new: "(pubsub_googleapis_com:subscription_ack_message_count[10m])",
	}}},
	{"a drain that never runs, without an alert", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "drain_refused" {`,
	}}},
	{"a parked event without an alert", []edit{{file: "monitoring.tf", old: "    parked = {", new: "    unparked = {"}}},
	{"a relay that pages for a second's outage", []edit{{
		file: "monitoring.tf", old: "jsonPayload.held_up_ms>=${1000 * local.declared_alerts.TopicPaused.for}",
		new: "jsonPayload.failures>=3",
	}}},
	{"a gap that alerts while video is deployed", []edit{{
		file: "monitoring.tf", old: "jsonPayload.open_ms>=${1000 * local.declared_alerts.GapsOpen.for}",
		new: "severity>=ERROR",
	}}},
	{"a line that pages where its metric is a ticket", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "logs" {`, old: "local.channels[each.value.severity]",
		new: "local.channels.page",
	}}},
	{"a line that is less severe than its metric", []edit{{
		file: "monitoring.tf", old: `stands_for = "OwnerLostCommits"`, new: `stands_for = "DriftFound"`,
	}}},
	{"a fault that is told twice", []edit{{file: "monitoring.tf", old: "if !contains(keys(local.alerts), alert.stands_for)", new: "if true"}}},
	{"a parked event that nobody learns of while video sleeps", []edit{{
		file: "monitoring.tf", old: "if !contains(keys(local.alerts), alert.stands_for)", new: "if !local.collected",
	}}},
	{"an alert on a parked event that ends when video falls asleep", []edit{{
		file: "alerts.tf", old: `["RelayMissing", "EventsParked"] : []`, new: `["RelayMissing"] : []`,
	}}},
	{"a parked event that is told once, however long it waits", []edit{{
		file: "monitoring.tf", old: "        \"jsonPayload.message=\\\"events are parked and need a person\\\"\",\n",
	}}},
	{"a page for each series of drains that ends", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "drain" {`,
		old: "      cross_series_reducer = \"REDUCE_SUM\"\n",
	}}},
	{"a page of a failed drain that names other causes", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "jobs" {`,
		old: "${var.runbook_url}#publishing-without-a-service-that-always-runs",
		new: "${var.runbook_url}#events-are-parked-outbox_parked-above-0",
	}}},
	{"a killed container that wakes a person", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "memory" {`, old: "local.channels.ticket",
		new: "local.channels.page",
	}}},
	{"a disk that fills, as a ticket", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "disk" {`, old: "local.channels.page", new: "local.channels.ticket",
	}}},
	{"an operator's wrong id that wakes a person", []edit{{
		file: "monitoring.tf", old: "[module.video.migrate, ", new: `[module.video.migrate, module.video.jobs["video-outbox"], `,
	}}},
	{"a rebuild that fails without an alert", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "rebuild" {`, old: `jobs["catalog-rebuild"].name`,
		new: `jobs["catalog-dlq"].name`,
	}}},
	{"lost commits without an alert", []edit{{file: "monitoring.tf", old: "    diverged = {", new: "    converged = {"}}},
	{"replaced rows without an alert", []edit{{
		file: "monitoring.tf",
		old:  "        \"jsonPayload.message=\\\"row had a history that its owner has lost: it was replaced by the owner's state\\\"\",\n",
	}}},
	{"more instances than the database takes", []edit{{
		file: "variables_services.tf", in: `variable "video" {`, old: "max_instances       = optional(number, 2)",
		new: "max_instances = optional(number, 3)",
	}}},
	{"no spare instance", []edit{{file: "database.tf", old: "service.max_instances + 2", new: "service.max_instances + 1"}}},
	{"workers that are not counted", []edit{{file: "database.tf", old: " + 2 * service.workers", new: ""}}},
	{"connections counted against what the database does not take", []edit{{
		file: "database.tf", old: "value = tostring(var.cloud_sql.max_connections)", new: `value = "50"`,
	}}},
	{"instances counted against nothing", []edit{{
		file: "variables_database.tf", old: "try(var.cloud_sql.max_connections >= local.connections, false)",
		new: "try(var.cloud_sql.max_connections >= 1, false)",
	}}},
	{"workers that are killed before they start", []edit{{
		file: serviceDir + "workers.tf", in: `resource "google_cloud_run_v2_worker_pool" "workers" {`,
		old: "failure_threshold = 40", new: "failure_threshold = 2",
	}}},
	{"a job without the policy for images", []edit{{
		file: serviceDir + "jobs.tf", in: `resource "google_cloud_run_v2_job" "jobs" {`, old: "var.deployment.binary_authorization ? [true] : []",
		new: "[]",
	}}},
}
