# Alerts: what they look at, and whom they tell.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "acme-test"
  project_number = "123456789012"
  auth_issuer    = "https://issuer.example.com/auth/v1"
  auth_audience  = "authenticated"
  video          = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
  catalog        = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111" }
}

run "alerts" {
  command = apply

  variables {
    video                 = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0, drain_schedule = "*/5 * * * *" }
    notification_channels = ["projects/acme-test/notificationChannels/1"]
    ticket_channels       = ["projects/acme-test/notificationChannels/2"]
    runbook_url           = "https://example.com/runbook.md"
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
    cloud_sql             = {}
    budget                = { billing_account = "000000-AAAAAA-BBBBBB", amount = 200, email_channels = ["projects/acme-test/notificationChannels/3"] }
  }

  # A metric that is not Google's own does not exist before its first value is written: in
  # a new project the first apply would end there.
  assert {
    condition = alltrue([
      for policy in concat([google_monitoring_alert_policy.jobs], google_monitoring_alert_policy.disk, google_monitoring_alert_policy.connections) :
      can(regex("metric.type = \"(run|cloudsql)\\.googleapis\\.com/", policy.conditions[0].condition_threshold[0].filter))
    ])
    error_message = "Alerts with a filter must be on metrics that every project has."
  }
  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.metrics) : policy.conditions[0].condition_prometheus_query_language[0].disable_metric_validation
    ])
    error_message = "Alerts in PromQL must not require that their metric exists already: the first apply would end there."
  }
  assert {
    condition     = toset(keys(google_monitoring_alert_policy.metrics)) == setsubtract(keys(jsondecode(file("alerts.json"))), ["RelayMissing", "EventsParked"])
    error_message = "With the collector each alert must have its policy; but a video service that may sleep shows no metrics meanwhile: the drain sees what is wrong then."
  }
  assert {
    condition = alltrue([
      for name, alert in jsondecode(file("alerts.json")) : alltrue([
        for policy in [google_monitoring_alert_policy.metrics[name]] :
        policy.conditions[0].condition_prometheus_query_language[0].query == alert.expr &&
        policy.conditions[0].condition_prometheus_query_language[0].duration == "${alert.for}s" &&
        policy.severity == (alert.severity == "page" ? "CRITICAL" : "WARNING") &&
        policy.notification_channels == tolist(["projects/acme-test/notificationChannels/${alert.severity == "page" ? 1 : 2}"]) &&
        endswith(policy.documentation[0].content, "https://example.com/runbook.md${alert.anchor}")
      ]) if !contains(["RelayMissing", "EventsParked"], name)
    ])
    error_message = "A policy must ask, wait and tell as internal/monitoring says, with the address of the runbook's entry."
  }
  assert {
    condition = { for id, board in google_monitoring_dashboard.boards : id => jsondecode(board.dashboard_json) } == {
      for id, board in jsondecode(file("boards.json")) : id => board.dashboard
    }
    error_message = "With the collector each board must be there, as internal/monitoring has it."
  }
  assert {
    condition     = { for name, policy in google_monitoring_alert_policy.logs : name => one(policy.notification_channels) } == { parked = "projects/acme-test/notificationChannels/2" }
    error_message = "With the collector an alert on a log line would repeat an alert on a metric: two notifications of one fault. But a parked event has no metric while video sleeps, and must be a ticket all the same."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.jobs.documentation[0].content, "Pub/Sub") && strcontains(google_monitoring_alert_policy.jobs.documentation[0].content, "the database") &&
      strcontains(google_monitoring_alert_policy.jobs.documentation[0].content, "When an apply fails") &&
      endswith(google_monitoring_alert_policy.jobs.documentation[0].content, "https://example.com/runbook.md#publishing-without-a-service-that-always-runs")
    )
    error_message = "The page of a failed drain must name its causes and the drain's own entry of the runbook."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.jobs.conditions[0].condition_threshold[0].filter, "job_name = one_of(\"video-migrate\", \"catalog-migrate\", \"video-drain\") AND")
    error_message = "Migrations and the drain must be watched, and no job in which an operator types a wrong id."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.rebuild.conditions[0].condition_threshold[0].filter, "job_name = \"${module.catalog.jobs["catalog-rebuild"].name}\" AND") && strcontains(google_monitoring_alert_policy.rebuild.conditions[0].condition_threshold[0].filter, "\"failed\"")
    error_message = "A rebuild that fails after hours must be noticed."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.rebuild.documentation[0].content, "wrong command")
    error_message = "The job runs a person's words, too: the ticket must not claim that a rebuild failed."
  }
  assert {
    condition = alltrue([
      for policy in concat(
        [google_monitoring_alert_policy.jobs, google_monitoring_alert_policy.memory], google_monitoring_alert_policy.drain, google_monitoring_alert_policy.drain_refused,
        google_monitoring_alert_policy.disk, google_monitoring_alert_policy.connections, [google_monitoring_alert_policy.rebuild],
      ) :
      can(regex("Runbook: https://example.com/runbook.md#[a-z0-9_-]+$", policy.documentation[0].content))
    ])
    error_message = "Each policy must end with the address of its runbook entry."
  }
  assert {
    condition = (
      google_monitoring_alert_policy.connections[0].conditions[0].condition_threshold[0].threshold_value == 80 &&
      google_monitoring_alert_policy.connections[0].conditions[0].condition_threshold[0].aggregations[0].cross_series_reducer == "REDUCE_SUM"
    )
    error_message = "Connections must be noticed at four fifths of max_connections, those of all databases together."
  }
  assert {
    condition = alltrue([for part in ["cloud_run_revision", "cloud_run_worker_pool", "cloud_run_job", "varlog/system", "Memory limit of .+ exceeded"] :
      strcontains(google_monitoring_alert_policy.memory.conditions[0].condition_matched_log[0].filter, part)
    ])
    error_message = "A container that Cloud Run kills for its memory must be noticed, whatever it runs."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].filter, "\"${module.video.jobs["video-drain"].name}\"") &&
      strcontains(google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].filter, "\"succeeded\"")
    )
    error_message = "A drain that no longer runs must be noticed: a schedule that is paused fails nothing."
  }
  assert {
    condition = (
      google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].aggregations[0].cross_series_reducer == "REDUCE_SUM" &&
      google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].aggregations[0].group_by_fields == null
    )
    error_message = "The successful drains must be one series: of several, each that ends would be a page of its own, also while drains succeed."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.drain_refused[0].conditions[0].condition_matched_log[0].filter, "job_id=\"${google_cloud_scheduler_job.video_drain[0].name}\"") &&
      strcontains(google_monitoring_alert_policy.drain_refused[0].conditions[0].condition_matched_log[0].filter, "severity>=ERROR")
    )
    error_message = "A drain that has never run must be noticed: a metric that was never written is not absent."
  }
  assert {
    condition = alltrue([
      for policy in concat(
        [google_monitoring_alert_policy.jobs, google_monitoring_alert_policy.rebuild, google_monitoring_alert_policy.memory], google_monitoring_alert_policy.drain, google_monitoring_alert_policy.drain_refused,
        google_monitoring_alert_policy.disk, google_monitoring_alert_policy.connections, values(google_monitoring_alert_policy.metrics), values(google_monitoring_alert_policy.logs),
      ) : policy.user_labels["application"] == "lockstep" && contains(["page", "ticket"], policy.user_labels["severity"])
    ])
    error_message = "Each policy must have the labels and its severity."
  }
  assert {
    condition     = one(google_billing_budget.project[0].budget_filter[0].projects) == "projects/123456789012" && google_billing_budget.project[0].amount[0].specified_amount[0].units == "200" && one(google_billing_budget.project[0].all_updates_rule[0].monitoring_notification_channels) == "projects/acme-test/notificationChannels/3"
    error_message = "The budget must be the project's, and tell email_channels alone: Google refuses a budget that tells a pager."
  }
  assert {
    condition = alltrue([
      for policy in concat([google_monitoring_alert_policy.jobs, google_monitoring_alert_policy.rebuild, google_monitoring_alert_policy.memory], values(google_monitoring_alert_policy.metrics)) :
      policy.alert_strategy[0].auto_close == "1800s"
    ])
    error_message = "An incident must close by itself, as soon as Google lets it: while it is open, the next one sends no notification."
  }
  assert {
    condition = alltrue([
      for policy in concat([google_monitoring_alert_policy.jobs], google_monitoring_alert_policy.drain, google_monitoring_alert_policy.drain_refused, google_monitoring_alert_policy.disk, google_monitoring_alert_policy.connections) :
      policy.severity == "CRITICAL" && policy.user_labels["severity"] == "page" && policy.notification_channels == tolist(["projects/acme-test/notificationChannels/1"])
    ])
    error_message = "What cannot wait must be a page, and reach notification_channels."
  }
  assert {
    condition = alltrue([
      for policy in [google_monitoring_alert_policy.rebuild, google_monitoring_alert_policy.memory] :
      policy.severity == "WARNING" && policy.user_labels["severity"] == "ticket" && policy.notification_channels == tolist(["projects/acme-test/notificationChannels/2"])
    ])
    error_message = "A rebuild that failed and a container that was killed and started again can wait: tickets, which reach ticket_channels."
  }
}

run "logs" {
  command = apply

  variables {
    notification_channels = ["projects/acme-test/notificationChannels/1"]
    ticket_channels       = ["projects/acme-test/notificationChannels/2"]
    runbook_url           = "https://example.com/runbook.md"
  }

  assert {
    condition = { for name, policy in google_monitoring_alert_policy.logs : name => policy.user_labels["severity"] } == {
      held-up = jsondecode(file("alerts.json")).TopicPaused.severity, parked = jsondecode(file("alerts.json")).EventsParked.severity,
      gap     = jsondecode(file("alerts.json")).GapsOpen.severity, diverged = jsondecode(file("alerts.json")).OwnerLostCommits.severity,
      differs = jsondecode(file("alerts.json")).DriftFound.severity,
    }
    error_message = "An alert on a log line must be as severe as the alert on a metric that it stands in for."
  }
  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.logs) :
      policy.severity == (policy.user_labels["severity"] == "page" ? "CRITICAL" : "WARNING") &&
      policy.notification_channels == tolist(["projects/acme-test/notificationChannels/${policy.user_labels["severity"] == "page" ? 1 : 2}"])
    ])
    error_message = "A page must reach notification_channels, a ticket ticket_channels."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.logs["held-up"].conditions[0].condition_matched_log[0].filter, "held_up_ms>=${1000 * jsondecode(file("alerts.json")).TopicPaused.for}") &&
      strcontains(google_monitoring_alert_policy.logs["gap"].conditions[0].condition_matched_log[0].filter, "open_ms>=${1000 * jsondecode(file("alerts.json")).GapsOpen.for}")
    )
    error_message = "A relay that is held up and a gap must last for as long as the alert on their metric waits: a deployment of video closes gaps by itself."
  }
  assert {
    condition = alltrue([for line in [
      "read model diverged from its owner, which has lost commits: taking its state",
      "row had a history that its owner has lost: it was replaced by the owner's state",
      "event acknowledged without effect: its owner has lost it",
    ] : strcontains(google_monitoring_alert_policy.logs["diverged"].conditions[0].condition_matched_log[0].filter, "\"${line}\"")])
    error_message = "Commits that the owner has lost must be noticed, whichever line is the only one: the read model repairs itself, and the lost writes would stay unnoticed."
  }
  assert {
    condition = alltrue([for name in ["held-up", "parked", "gap", "diverged", "differs"] :
      strcontains(google_monitoring_alert_policy.logs[name].conditions[0].condition_matched_log[0].filter, "jsonPayload.message=") &&
      google_monitoring_alert_policy.logs[name].alert_strategy[0].notification_rate_limit[0].period == "3600s" &&
      google_monitoring_alert_policy.logs[name].alert_strategy[0].auto_close == "1800s" &&
      can(regex("Runbook: https://example.com/runbook.md#[a-z0-9_-]+$", google_monitoring_alert_policy.logs[name].documentation[0].content))
    ])
    error_message = "An event that does not leave, one that is parked, a gap that stays, and a read model that diverged or differs, must be noticed, once an hour at most and with the address of the runbook's entry: no metric of Google's knows of them."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.jobs.conditions[0].condition_threshold[0].filter, "job_name = one_of(\"video-migrate\", \"catalog-migrate\") AND")
    error_message = "Without a schedule there is no drain to watch, but the migrations."
  }
}

# The drain does not fail while an event is parked: that is a ticket, not a page.
run "logs_with_a_drain" {
  command = apply

  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0, drain_schedule = "*/5 * * * *" }
  }
  assert {
    condition     = toset(keys(google_monitoring_alert_policy.logs)) == toset(["held-up", "parked", "gap", "diverged", "differs"])
    error_message = "A parked event must be a ticket with a drain, too: the drain ends well."
  }
  assert {
    condition = alltrue([for part in ["\"broker refused event\" AND jsonPayload.parked=true) OR", "\"events are parked and need a person\"", "cloud_run_job"] :
      strcontains(google_monitoring_alert_policy.logs["parked"].conditions[0].condition_matched_log[0].filter, part)
    ])
    error_message = "A parked event must be noticed by the relay's line and by the drain's, which repeats it until a person has acted."
  }
}

# Where an instance or a worker is always there, the metric is, too.
run "a_drain_beside_instances" {
  command = plan

  variables {
    video                 = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0, workers = 1, drain_schedule = "*/5 * * * *" }
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  }
  assert {
    condition     = contains(keys(google_monitoring_alert_policy.metrics), "EventsParked") && contains(keys(google_monitoring_alert_policy.metrics), "RelayMissing") && length(google_monitoring_alert_policy.logs) == 0
    error_message = "A parked event must be one ticket, on the metric of the worker that is always there."
  }
}

run "without_a_collector" {
  command = apply

  variables {
    notification_channels = ["projects/acme-test/notificationChannels/1"]
  }

  assert {
    condition     = toset(keys(google_monitoring_alert_policy.metrics)) == toset(concat([for name, alert in jsondecode(file("alerts.json")) : name if alert.google], ["RequestsFail"]))
    error_message = "Without the collector an alert on the services' own metrics would never fire, or always."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.metrics["RequestsFail"].conditions[0].condition_prometheus_query_language[0].query, "run_googleapis_com:request_count{response_code_class=\"5xx\"}")
    error_message = "Without the collector requests that fail must be a page all the same, by Cloud Run's own count."
  }
  assert {
    condition     = keys(google_monitoring_dashboard.boards) == ["pubsub"]
    error_message = "Without the collector a board on the services' own metrics would be empty."
  }
  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.metrics) :
      length(regexall("(pubsub|run)_googleapis_com:", policy.conditions[0].condition_prometheus_query_language[0].query)) > 0 &&
      policy.notification_channels == tolist(["projects/acme-test/notificationChannels/1"])
    ])
    error_message = "These alerts must be on Google's own metrics, and reach notification_channels."
  }
  assert {
    condition     = length(module.video.service.template[0].containers) == 1 && length(module.catalog.service.template[0].containers) == 1 && length(google_project_iam_member.writes_metrics) == 0
    error_message = "There must be no collector, and nobody may write metrics."
  }
}

run "collector" {
  command = apply

  variables {
    video                 = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", workers = 1, canary_seconds = 15, extra_environment = { OTEL_EXPORTER_OTLP_ENDPOINT = "https://otel.example.com" } }
    catalog               = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 1 }
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  }

  assert {
    condition = alltrue([
      for instance in [
        module.video.service.template[0], module.catalog.service.template[0],
        module.video.workers[0].template[0], module.catalog.workers[0].template[0],
      ] :
      length(instance.containers) == 2 && instance.containers[1].image == "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222" &&
      instance.containers[0].startup_probe[0].http_get[0].port == 8080
    ])
    error_message = "Each instance must have the collector, which looks at 8080."
  }
  assert {
    condition = alltrue([
      for instance in [module.video.service.template[0], module.catalog.service.template[0]] :
      instance.containers[1].depends_on == tolist([instance.containers[0].name])
    ])
    error_message = "The collector of a service must start after the service."
  }
  # The provider replaces a pool of which depends_on changes, so a collector that is added or
  # left out would stop all workers.
  assert {
    condition = alltrue(flatten([
      for pool in [module.video.workers[0], module.catalog.workers[0]] : [
        for container in pool.template[0].containers : container.depends_on == null
      ]
    ]))
    error_message = "No container of a worker pool may have depends_on: with it, Terraform replaces the pool when the collector is added or left out."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.template[0].containers[1].resources[0].cpu_idle == false && length(service.template[0].containers[1].ports) == 0
    ])
    error_message = "The collector must have CPU between requests, and no port."
  }
  assert {
    condition = alltrue([
      for instance in [module.video.service.template[0], module.video.workers[0].template[0]] :
      contains(instance.containers[0].args, "-canary-interval=15s")
    ])
    error_message = "Every instance that relays must know the canary: one of them commits."
  }
  assert {
    condition = { for e in module.video.service.template[0].containers[0].env : e.name => e.value if startswith(e.name, "OTEL_") } == { OTEL_EXPORTER_OTLP_ENDPOINT = "https://otel.example.com" } && (
      { for e in module.video.workers[0].template[0].containers[0].env : e.name => e.value if startswith(e.name, "OTEL_") } == { OTEL_EXPORTER_OTLP_ENDPOINT = "https://otel.example.com" }
    ) && length([for e in module.catalog.service.template[0].containers[0].env : e if startswith(e.name, "OTEL_")]) == 0
    error_message = "extra_environment must reach the service and its workers, and no other."
  }
}
