# Google's collector for Prometheus, a second container of each instance: it reads the
# services' metrics every 30 s, without a configuration of its own from 8080, which is
# admin_port of modules/service.

locals {
  collected = var.metrics_sidecar_image != ""
}

resource "google_project_iam_member" "writes_metrics" {
  for_each = local.collected ? { video = module.video.account.email, catalog = module.catalog.account.email } : {}

  project = var.project_id
  role    = "roles/monitoring.metricWriter"
  member  = "serviceAccount:${each.value}"
}
