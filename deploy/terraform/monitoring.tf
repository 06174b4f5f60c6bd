# What Pub/Sub itself can tell, whatever the services say of themselves.

locals {
  subscription_alerts = {
    backlog = {
      title      = "catalog is behind"
      metric     = "pubsub.googleapis.com/subscription/oldest_unacked_message_age"
      names      = [for subscription in google_pubsub_subscription.catalog : subscription.name]
      threshold  = 300
      duration   = "300s"
      what_to_do = "An event has waited for five minutes. Runbook: \"The consumer is held up\", \"Gaps stay open\"."
    }
    dead-letters = {
      title      = "dead letters wait"
      metric     = "pubsub.googleapis.com/subscription/num_undelivered_messages"
      names      = [for subscription in google_pubsub_subscription.dead_letters : subscription.name]
      threshold  = 0
      duration   = "0s"
      what_to_do = "catalog could not apply an event. Runbook: \"Dead letters\"; gcloud run jobs execute catalog-dlq --region=${var.region} --args=dlq,list"
    }
  }
}

resource "google_monitoring_alert_policy" "subscriptions" {
  for_each = local.subscription_alerts

  display_name          = "lockstep: ${each.value.title}"
  combiner              = "OR"
  notification_channels = var.notification_channels

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"pubsub_subscription\"",
        "resource.labels.subscription_id = one_of(${join(", ", [for name in each.value.names : "\"${name}\""])})",
        "metric.type = \"${each.value.metric}\"",
      ])
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.threshold
      duration        = each.value.duration

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = each.value.what_to_do
  }
}

# The drain fails when anything is parked, the migrations when the schema is not
# what the next revision needs.
resource "google_monitoring_alert_policy" "jobs" {
  display_name          = "lockstep: a job failed"
  combiner              = "OR"
  notification_channels = var.notification_channels

  conditions {
    display_name = "failed executions"

    condition_threshold {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_job\"",
        "resource.labels.job_name = one_of(\"${google_cloud_run_v2_job.video_migrate.name}\", \"${google_cloud_run_v2_job.catalog_migrate.name}\", \"${google_cloud_run_v2_job.video_outbox.name}\")",
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
  # seven days unless it is told otherwise, would swallow the next failure.
  alert_strategy {
    auto_close = "1800s"
  }

  documentation {
    mime_type = "text/markdown"
    content   = "gcloud run jobs executions list --region=${var.region} shows which, its log why. A migration: deploy/terraform/README.md, When an apply fails. The drain, Runbook: \"Events are parked\"."
  }
}

# A schedule that is paused, or may not run its job, fails nothing: it is only silent,
# and so are the events that a sleeping video has left behind.
resource "google_monitoring_alert_policy" "drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  display_name          = "lockstep: nobody drains the outbox"
  combiner              = "OR"
  notification_channels = var.notification_channels

  conditions {
    display_name = "no successful execution for two hours"

    condition_absent {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_job\"",
        "resource.labels.job_name = \"${google_cloud_run_v2_job.video_outbox.name}\"",
        "metric.type = \"run.googleapis.com/job/completed_execution_count\"",
        "metric.labels.result = \"succeeded\"",
      ])
      duration = "7200s"

      aggregations {
        alignment_period   = "60s"
        per_series_aligner = "ALIGN_DELTA"
      }
    }
  }

  documentation {
    mime_type = "text/markdown"
    content   = "gcloud scheduler jobs describe video-drain --location=${var.region} shows whether it is paused, and how its last attempt ended. Runbook: \"Publishing without a service that always runs\"."
  }
}

resource "google_monitoring_dashboard" "pubsub" {
  dashboard_json = jsonencode({
    displayName = "lockstep: Pub/Sub"
    gridLayout = {
      columns = "2"
      widgets = [
        for title, metric in {
          "oldest event that waits, s" = "oldest_unacked_message_age"
          "events that wait"           = "num_undelivered_messages"
          "dead-lettered by Pub/Sub"   = "dead_letter_message_count"
          "acknowledged"               = "ack_message_count"
          } : {
          title = title
          xyChart = {
            dataSets = [{
              plotType = "LINE"
              timeSeriesQuery = {
                timeSeriesFilter = {
                  filter = "resource.type=\"pubsub_subscription\" metric.type=\"pubsub.googleapis.com/subscription/${metric}\""
                  aggregation = {
                    alignmentPeriod    = "60s"
                    perSeriesAligner   = endswith(metric, "message_count") ? "ALIGN_RATE" : "ALIGN_MAX"
                    crossSeriesReducer = endswith(metric, "message_count") ? "REDUCE_SUM" : "REDUCE_MAX"
                    groupByFields      = ["resource.label.subscription_id"]
                  }
                }
              }
            }]
          }
        }
      ]
    }
  })
}
