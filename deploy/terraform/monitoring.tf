# Alerts on log lines of the services, where nothing collects their metrics; and on what has a
# name or a limit of this project. All others on metrics: alerts.tf.

locals {
  # Lines that the services write; a test compares them with the code. One line is
  # enough for an alert, and the next notification comes an hour later at the earliest.
  # stands_for names the alert on a metric for the same fault. If that alert is there, the
  # alert on the line is not, so that each fault has one alert. The severity, the entry of the
  # runbook and the time for which the fault has to last are those of the alert on the metric.
  log_alerts = {
    held-up = {
      stands_for = "EventsNotLeaving"
      title      = "events are not leaving"
      filter     = "jsonPayload.message=\"relay is held up, nothing is lost\" AND jsonPayload.held_up_ms>=${1000 * local.declared_alerts.TopicPaused.for}"
      what_to_do = "video has published nothing for two minutes, or nothing to one topic; events wait in its outbox. With a cause in the line, a topic is paused."
    }
    # The line of the relay that parks the event, in a service, a worker or the drain; and that
    # of each drain after it, which repeats the ticket until a person has acted.
    parked = {
      stands_for = "EventsParked"
      title      = "an event is parked"
      filter = "(${join(" OR ", [
        "(jsonPayload.message=\"broker refused event\" AND jsonPayload.parked=true)",
        "jsonPayload.message=\"events are parked and need a person\"",
      ])})"
      what_to_do = "Pub/Sub has refused an event for good; the later events of its video wait."
    }
    gap = {
      stands_for = "GapsOpen"
      title      = "a gap stays open"
      filter     = "jsonPayload.message=\"gap not repaired yet\" AND jsonPayload.open_ms>=${1000 * local.declared_alerts.GapsOpen.for}"
      what_to_do = "catalog has not got missed events' state from video for ten minutes."
    }
    # The lines of an event that contradicts the read model, of the row that gives way,
    # and of an event that the owner does not know: each may be the only one of the
    # three.
    diverged = {
      stands_for = "OwnerLostCommits"
      title      = "video has lost commits"
      filter = "(${join(" OR ", [
        "jsonPayload.message=\"read model diverged from its owner, which has lost commits: taking its state\"",
        "jsonPayload.message=\"row had a history that its owner has lost: it was replaced by the owner's state\"",
        "jsonPayload.message=\"event acknowledged without effect: its owner has lost it\"",
      ])})"
      what_to_do = "Confirmed writes are gone; catalog repairs itself."
    }
    differs = {
      stands_for = "DriftFound"
      title      = "the read model differs from video"
      filter     = "jsonPayload.message=\"row differs from its owner's\""
      what_to_do = "catalog has compared its rows with video's, and repairs none by itself."
    }
  }
}

resource "google_monitoring_alert_policy" "logs" {
  for_each = {
    for name, alert in local.log_alerts : name => merge(alert, local.declared_alerts[alert.stands_for])
    if !contains(keys(local.alerts), alert.stands_for)
  }

  display_name          = "lockstep: ${each.value.title}"
  combiner              = "OR"
  severity              = local.severities[each.value.severity]
  notification_channels = local.channels[each.value.severity]
  user_labels           = merge(var.labels, { severity = each.value.severity })

  conditions {
    display_name = each.value.title

    condition_matched_log {
      filter = "resource.type=(\"cloud_run_revision\" OR \"cloud_run_worker_pool\" OR \"cloud_run_job\") AND ${each.value.filter}"
    }
  }

  alert_strategy {
    auto_close = "1800s"

    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "${each.value.what_to_do} Runbook: ${var.runbook_url}${each.value.anchor}"
  }
}

# The limit is the size up to which the disk grows by itself. At the limit nothing can
# be written.
resource "google_monitoring_alert_policy" "disk" {
  count = var.cloud_sql == null ? 0 : 1

  display_name          = "lockstep: the database's disk fills"
  combiner              = "OR"
  severity              = local.severities.page
  notification_channels = local.channels.page
  user_labels           = merge(var.labels, { severity = "page" })

  conditions {
    display_name = "four fifths of disk_limit_gb"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloudsql_database\"",
        "resource.labels.database_id = \"${var.project_id}:${google_sql_database_instance.main[0].name}\"",
        "metric.type = \"cloudsql.googleapis.com/database/disk/bytes_used\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0.8 * local.disk_limit_gb * 1024 * 1024 * 1024
      duration        = "300s"

      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Find the writer. A higher disk_limit_gb gives time, and is never given back. Runbook: ${var.runbook_url}#the-outbox-grows"
  }
}

# At the limit no instance gets a further connection.
resource "google_monitoring_alert_policy" "connections" {
  count = var.cloud_sql == null ? 0 : 1

  display_name          = "lockstep: the database's connections run out"
  combiner              = "OR"
  severity              = local.severities.page
  notification_channels = local.channels.page
  user_labels           = merge(var.labels, { severity = "page" })

  conditions {
    display_name = "four fifths of max_connections"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloudsql_database\"",
        "resource.labels.database_id = \"${var.project_id}:${google_sql_database_instance.main[0].name}\"",
        "metric.type = \"cloudsql.googleapis.com/database/postgresql/num_backends\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0.8 * var.cloud_sql.max_connections
      duration        = "300s"

      # The metric is by database of the instance.
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_MAX"
        cross_series_reducer = "REDUCE_SUM"
        group_by_fields      = ["resource.label.database_id"]
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Find who holds them. The connections of max_instances fit, and those of one instance more of each service. Cloud Run may start further ones for a short time, and other clients are not counted. Runbook: ${var.runbook_url}#database-connections-run-short-database_pool_wait_seconds_total-grows"
  }
}

# Without ids the database takes no writes. Vacuum keeps them below a tenth, unless something holds it up.
resource "google_monitoring_alert_policy" "transaction_ids" {
  count = var.cloud_sql == null ? 0 : 1

  display_name          = "lockstep: the database's transaction ids run out"
  combiner              = "OR"
  severity              = local.severities.ticket
  notification_channels = local.channels.ticket
  user_labels           = merge(var.labels, { severity = "ticket" })

  conditions {
    display_name = "half of the transaction ids"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloudsql_database\"",
        "resource.labels.database_id = \"${var.project_id}:${google_sql_database_instance.main[0].name}\"",
        "metric.type = \"cloudsql.googleapis.com/database/postgresql/transaction_id_utilization\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0.5
      duration        = "300s"

      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Find the transaction, the prepared transaction or the slot that holds vacuum up. Runbook: ${var.runbook_url}#the-database-has-no-transaction-ids-left"
  }
}

# Cloud Run's own line, which is the only trace: the process has no time for one. Another
# container has been started, as after a restart of InstancesRestart.
resource "google_monitoring_alert_policy" "memory" {
  display_name          = "lockstep: a container was killed for its memory"
  combiner              = "OR"
  severity              = local.severities.ticket
  notification_channels = local.channels.ticket
  user_labels           = merge(var.labels, { severity = "ticket" })

  conditions {
    display_name = "Memory limit exceeded"

    condition_matched_log {
      filter = join(" AND ", [
        "resource.type=(\"cloud_run_revision\" OR \"cloud_run_worker_pool\" OR \"cloud_run_job\")",
        "log_id(\"run.googleapis.com/varlog/system\")",
        "textPayload=~\"Memory limit of .+ exceeded\"",
      ])
    }
  }

  alert_strategy {
    auto_close = "1800s"

    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "Cloud Run has killed a container, and started another one. Runbook: ${var.runbook_url}#memory-runs-short-process_resident_memory_bytes"
  }
}

# The drain fails when events are left that could be sent, the migrations when the schema does
# not fit the next revision. A parked event is a ticket of its own, and fails no drain. An
# operator sees by themselves how their own command ends, so the jobs video-outbox and
# catalog-dlq are not here.
resource "google_monitoring_alert_policy" "jobs" {
  display_name          = "lockstep: a job failed"
  combiner              = "OR"
  severity              = local.severities.page
  notification_channels = local.channels.page
  user_labels           = merge(var.labels, { severity = "page" })

  conditions {
    display_name = "failed executions"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_job\"",
        "resource.labels.job_name = one_of(${join(", ", [
          for job in concat([module.video.migrate, module.catalog.migrate], local.drain) : "\"${job.name}\""
        ])})",
        "metric.type = \"run.googleapis.com/job/completed_execution_count\"",
        "metric.labels.result = \"failed\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_DELTA"
      }
    }
  }

  # Between executions there is nothing to measure. An incident that stays open, for
  # seven days by default, would swallow the next failure.
  alert_strategy {
    auto_close = "1800s"
  }

  documentation {
    mime_type = "text/markdown"
    content = join(" ", concat(
      [
        "gcloud run jobs executions list --region=${var.region} shows which, its log why.",
        "A migration: deploy/terraform/README.md, When an apply fails. Runbook: ${var.runbook_url}#a-release-stops",
      ],
      var.video.drain_schedule == null ? [] : [
        "The drain: events were left after 5 minutes, as in an outage of Pub/Sub, or the database did not answer. Nothing is lost, and the next drain tries again. Runbook: ${var.runbook_url}#publishing-without-a-service-that-always-runs",
      ],
    ))
  }
}

# A rebuild may run for a day, and no one waits for its end. The old read model is served
# meanwhile. The metric does not have the exit code, so a person's wrong command is a ticket,
# too.
resource "google_monitoring_alert_policy" "rebuild" {
  display_name          = "lockstep: a rebuild failed"
  combiner              = "OR"
  severity              = local.severities.ticket
  notification_channels = local.channels.ticket
  user_labels           = merge(var.labels, { severity = "ticket" })

  conditions {
    display_name = "failed executions"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_job\"",
        "resource.labels.job_name = \"${module.catalog.jobs["catalog-rebuild"].name}\"",
        "metric.type = \"run.googleapis.com/job/completed_execution_count\"",
        "metric.labels.result = \"failed\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_DELTA"
      }
    }
  }

  alert_strategy {
    auto_close = "1800s"
  }

  documentation {
    mime_type = "text/markdown"
    content   = "The log of the execution says why. A wrong command ends with exit code 2 and has changed nothing: correct it. A rebuild goes on if the command is repeated; the old read model is served meanwhile. Runbook: ${var.runbook_url}#the-read-model-is-wrong-as-a-whole"
  }
}

# A paused schedule causes no failure: it writes nothing, and the events that a sleeping
# video has left behind stay. A metric that was never written is not absent, so this
# alert does not cover a drain that has never run; the next one does.
resource "google_monitoring_alert_policy" "drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  display_name          = "lockstep: the outbox is not drained"
  combiner              = "OR"
  severity              = local.severities.page
  notification_channels = local.channels.page
  user_labels           = merge(var.labels, { severity = "page" })

  conditions {
    display_name = "no successful execution for two hours"

    condition_absent {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_job\"",
        "resource.labels.job_name = \"${local.drain[0].name}\"",
        "metric.type = \"run.googleapis.com/job/completed_execution_count\"",
        "metric.labels.result = \"succeeded\"",
      ])
      duration = "7200s"

      # All series are one, because the end of a single series would count as absent while drains go on.
      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "gcloud scheduler jobs describe video-drain --location=${var.region} shows whether it is paused, and how its last attempt ended. Runbook: ${var.runbook_url}#publishing-without-a-service-that-always-runs"
  }
}

# An attempt of the schedule that was refused, from the first one on: it may not run its
# job, or the job does not exist.
resource "google_monitoring_alert_policy" "drain_refused" {
  count = var.video.drain_schedule == null ? 0 : 1

  display_name          = "lockstep: the drain cannot be started"
  combiner              = "OR"
  severity              = local.severities.page
  notification_channels = local.channels.page
  user_labels           = merge(var.labels, { severity = "page" })

  conditions {
    display_name = "an error of Cloud Scheduler"

    condition_matched_log {
      filter = "resource.type=\"cloud_scheduler_job\" AND resource.labels.job_id=\"${google_cloud_scheduler_job.video_drain[0].name}\" AND severity>=ERROR"
    }
  }

  alert_strategy {
    auto_close = "1800s"

    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "gcloud scheduler jobs describe video-drain --location=${var.region} shows how its last attempt ended. Runbook: ${var.runbook_url}#publishing-without-a-service-that-always-runs"
  }
}

# The budget sends notifications, and stops nothing. Without a currency it has that of the billing
# account, and Google refuses another one. It also refuses channels that are not of the type email,
# so those of the alerts, which may page, are not here.
resource "google_billing_budget" "project" {
  count = var.budget == null ? 0 : 1

  billing_account = var.budget.billing_account
  display_name    = "lockstep in ${var.project_id}"

  budget_filter {
    projects = ["projects/${var.project_number}"]
  }

  amount {
    specified_amount {
      units = var.budget.amount
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  dynamic "all_updates_rule" {
    for_each = length(var.budget.email_channels) > 0 ? [true] : []
    content {
      monitoring_notification_channels = var.budget.email_channels
    }
  }
}
