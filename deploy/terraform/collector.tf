# Google's collector for Prometheus, a second container of each instance: it reads the
# services' metrics every 30 s, without a configuration of its own from 8080, which is
# local.admin_port.

locals {
  collected = var.metrics_sidecar_image != ""
  collector = local.collected ? [var.metrics_sidecar_image] : []

  # Where CPU is always allocated, Cloud Run takes no container with less.
  collector_limits = { cpu = "1", memory = "512Mi" }
}

resource "google_project_iam_member" "writes_metrics" {
  for_each = local.collected ? { video = google_service_account.video.email, catalog = google_service_account.catalog.email } : {}

  project = var.project_id
  role    = "roles/monitoring.metricWriter"
  member  = "serviceAccount:${each.value}"
}
