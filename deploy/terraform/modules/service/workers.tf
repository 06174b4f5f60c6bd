# Instances without an address, which only relay or consume: Cloud Run scales a service on requests,
# never on a backlog. The binary serves its ports here, too, for the probe alone.
resource "google_cloud_run_v2_worker_pool" "workers" {
  count = var.settings.workers > 0 ? 1 : 0

  name                = "${var.name}-workers"
  location            = var.deployment.region
  deletion_protection = false # it holds nothing

  scaling {
    scaling_mode          = "MANUAL"
    manual_instance_count = var.settings.workers
  }

  dynamic "binary_authorization" {
    for_each = var.deployment.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    annotations     = { migration = terraform_data.migration.id } # as for the service
    labels          = var.deployment.labels
    service_account = google_service_account.service.email

    containers {
      name  = var.name
      image = var.settings.image
      args  = var.args

      resources {
        limits = {
          cpu    = var.settings.cpu
          memory = var.settings.memory
        }
      }

      dynamic "env" {
        for_each = local.env
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.secret_env
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.connections[env.value].secret_id
              version = lookup(var.deployment.secret_versions, env.value, "1")
            }
          }
        }
      }

      startup_probe {
        period_seconds    = 3
        timeout_seconds   = 2
        failure_threshold = 40
        http_get {
          path = "/readyz"
          port = local.admin_port
        }
      }

      liveness_probe {
        period_seconds    = 15
        timeout_seconds   = 5
        failure_threshold = 4
        http_get {
          path = "/healthz"
          port = local.admin_port
        }
      }

      dynamic "volume_mounts" {
        for_each = var.sql_instances
        content {
          name       = "cloudsql"
          mount_path = "/cloudsql"
        }
      }
    }

    # Without depends_on, which the service's collector has: the provider replaces a pool of
    # which depends_on changes, so all workers would stop when the collector is added or left
    # out. The collector may read nothing in its first seconds, and miss the last ones.
    dynamic "containers" {
      for_each = local.collector
      content {
        name  = "metrics"
        image = containers.value
        resources {
          limits = local.collector_limits
        }
      }
    }

    dynamic "volumes" {
      for_each = var.sql_instances
      content {
        name = "cloudsql"
        cloud_sql_instance {
          instances = [volumes.value]
        }
      }
    }

    dynamic "vpc_access" {
      for_each = var.deployment.network[*]
      content {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
        }
      }
    }
  }

  depends_on = [google_cloud_run_v2_service.service]
}
