# The measured metrics, and the receivers of alerts.

variable "metrics_sidecar_image" {
  description = "Google's collector for Prometheus on Cloud Run, by digest: us-docker.pkg.dev/cloud-ops-agents-artifacts/cloud-run-gmp-sidecar/cloud-run-gmp-sidecar@sha256:… Empty leaves it out, and the alerts and dashboards on the services' own metrics with it."
  type        = string
  default     = ""

  validation {
    condition     = var.metrics_sidecar_image == "" || can(regex("^[a-z0-9.-]+/[^@]+@sha256:[0-9a-f]{64}$", var.metrics_sidecar_image))
    error_message = "metrics_sidecar_image must be an image by digest: …@sha256:… (a tag can be moved), or empty."
  }
}

variable "ticket_channels" {
  description = "The notification channels of alerts that can wait for a working day; null: notification_channels, as for those that cannot."
  type        = list(string)
  default     = null

  validation {
    condition     = alltrue([for channel in coalesce(var.ticket_channels, []) : can(regex("^projects/[^/]+/notificationChannels/[^/]+$", channel))])
    error_message = "ticket_channels must be projects/PROJECT/notificationChannels/NUMBER."
  }
}

variable "runbook_url" {
  description = "Where docs/runbook.md is read: https://github.com/OWNER/NAME/blob/main/docs/runbook.md. Each alert has the address of its entry."
  type        = string
  default     = "docs/runbook.md"

  validation {
    condition     = var.runbook_url == "docs/runbook.md" || can(regex("^https://[^#\\s]+$", var.runbook_url))
    error_message = "runbook_url must be an address, https://…, without #."
  }
}
