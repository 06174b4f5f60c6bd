# The alerts on metrics, as internal/monitoring declares them, which writes alerts.json
# (`make generate`). Those on the services' own metrics need the collector; Google's own
# metrics are there in any case. Without the collector an alert with an expression on Google's
# metrics instead has that one.

locals {
  declared_alerts = jsondecode(file("${path.module}/alerts.json"))

  # A video service that may sleep shows no metrics meanwhile, unless workers relay. An alert
  # on a parked event would end whenever video falls asleep, and begin again when it wakes up:
  # the drain's log line stands in for it (monitoring.tf).
  unneeded_alerts = var.video.min_instances == 0 && var.video.workers == 0 ? ["RelayMissing", "EventsParked"] : []

  alerts = {
    for name, alert in local.declared_alerts : name => alert
    if(alert.google || local.collected || can(alert.instead)) && !contains(local.unneeded_alerts, name)
  }

  # The notification channels of each severity, and Google's name of the severity.
  channels = {
    page   = var.notification_channels
    ticket = coalesce(var.ticket_channels, var.notification_channels)
  }
  severities = { page = "CRITICAL", ticket = "WARNING" }
}

resource "google_monitoring_alert_policy" "metrics" {
  for_each = local.alerts

  display_name          = "lockstep: ${each.key}"
  combiner              = "OR"
  severity              = local.severities[each.value.severity]
  notification_channels = local.channels[each.value.severity]
  user_labels           = merge(var.labels, { severity = each.value.severity })

  conditions {
    display_name = each.value.summary

    condition_prometheus_query_language {
      query               = local.collected ? each.value.expr : try(each.value.instead, each.value.expr)
      duration            = "${each.value.for}s"
      evaluation_interval = "30s"
      rule_group          = "lockstep"
      alert_rule          = each.key
      # A metric does not exist before its first value is written: in a new project the
      # first apply would end there.
      disable_metric_validation = true
    }
  }

  # An incident that stays open would swallow the next one.
  alert_strategy {
    auto_close = "1800s"
  }

  documentation {
    mime_type = "text/markdown"
    subject   = "lockstep: ${each.key}"
    content   = "${each.value.summary} Runbook: ${var.runbook_url}${each.value.anchor}"
  }
}
