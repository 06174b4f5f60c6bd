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
    cloud_sql             = {}
    budget                = { billing_account = "000000-AAAAAA-BBBBBB", amount = 200 }
  }

  # A metric that is not Google's own does not exist before its first value is written:
  # in a new project the first apply would end there.
  assert {
    condition = alltrue([
      for policy in concat(values(google_monitoring_alert_policy.subscriptions), [google_monitoring_alert_policy.jobs], google_monitoring_alert_policy.disk) :
      can(regex("metric.type = \"(pubsub|run|cloudsql)\\.googleapis\\.com/", policy.conditions[0].condition_threshold[0].filter))
    ])
    error_message = "Alerts must be on metrics that every project has."
  }
  assert {
    condition = alltrue([
      for name, resources in { backlog = google_pubsub_subscription.catalog, dead-letters = google_pubsub_subscription.dead_letters, broker-dead-letters = google_pubsub_subscription.catalog } :
      alltrue([for s in resources : strcontains(google_monitoring_alert_policy.subscriptions[name].conditions[0].condition_threshold[0].filter, "\"${s.name}\"")])
    ])
    error_message = "Each subscription must be watched, and each one's dead letters, written by the consumer or by Pub/Sub."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.subscriptions["broker-dead-letters"].conditions[0].condition_threshold[0].filter, "/dead_letter_message_count\"") &&
      google_monitoring_alert_policy.subscriptions["broker-dead-letters"].conditions[0].condition_threshold[0].aggregations[0].per_series_aligner == "ALIGN_DELTA"
    )
    error_message = "A dead letter of Pub/Sub's own must be noticed: it has no reason, and catalog has not seen it."
  }
  assert {
    condition     = strcontains(google_monitoring_alert_policy.logs["held-up"].conditions[0].condition_matched_log[0].filter, "(jsonPayload.failures>=3 OR jsonPayload.cause:*)")
    error_message = "A topic must be noticed when it is paused, not at the third pause: the line of a pause has a cause."
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
      google_monitoring_alert_policy.logs[name].alert_strategy[0].notification_rate_limit[0].period == "3600s"
    ])
    error_message = "An event that does not leave, one that is parked, a gap that stays, and a read model that diverged or differs, must be noticed: no metric of Google's knows of them."
  }
  assert {
    condition = alltrue([
      for job in [google_cloud_run_v2_job.video_migrate, google_cloud_run_v2_job.catalog_migrate, google_cloud_run_v2_job.video_outbox] :
      strcontains(google_monitoring_alert_policy.jobs.conditions[0].condition_threshold[0].filter, "\"${job.name}\"")
    ])
    error_message = "Migrations and the drain must be watched."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].filter, "\"${google_cloud_run_v2_job.video_outbox.name}\"") &&
      strcontains(google_monitoring_alert_policy.drain[0].conditions[0].condition_absent[0].filter, "\"succeeded\"")
    )
    error_message = "A drain that no longer runs must be noticed: a schedule that is paused fails nothing."
  }
  assert {
    condition = (
      strcontains(google_monitoring_alert_policy.drain_refused[0].conditions[0].condition_matched_log[0].filter, "job_id=\"${google_cloud_scheduler_job.video_drain[0].name}\"") &&
      strcontains(google_monitoring_alert_policy.drain_refused[0].conditions[0].condition_matched_log[0].filter, "severity>=ERROR")
    )
    error_message = "A drain that has never run must be noticed: a metric that was never written is not absent."
  }
  assert {
    condition     = one(google_billing_budget.project[0].budget_filter[0].projects) == "projects/123456789012" && google_billing_budget.project[0].amount[0].specified_amount[0].units == "200" && one(google_billing_budget.project[0].all_updates_rule[0].monitoring_notification_channels) == "projects/acme-test/notificationChannels/1"
    error_message = "The budget must be the project's, and tell notification_channels."
  }
  assert {
    condition = alltrue([
      for policy in concat([google_monitoring_alert_policy.jobs], values(google_monitoring_alert_policy.subscriptions), values(google_monitoring_alert_policy.logs)) :
      policy.alert_strategy[0].auto_close == "1800s"
    ])
    error_message = "An incident must close by itself, as soon as Google lets it: while it is open, the next one sends no notification."
  }
  assert {
    condition = alltrue([
      for policy in concat(values(google_monitoring_alert_policy.subscriptions), [google_monitoring_alert_policy.jobs], google_monitoring_alert_policy.drain, google_monitoring_alert_policy.drain_refused, google_monitoring_alert_policy.disk, values(google_monitoring_alert_policy.logs)) :
      policy.notification_channels == tolist(["projects/acme-test/notificationChannels/1"])
    ])
    error_message = "Alerts must reach notification_channels."
  }
}
