# What video may have besides: instances that only relay, and the operator's job,
# which a schedule can run in place of an instance that is always there.

# Cloud Run scales a service on requests, never on a backlog. The binary serves its
# port here, too, where nobody but the probe can reach it.
resource "google_cloud_run_v2_worker_pool" "video" {
  count = var.video.workers > 0 ? 1 : 0

  name                = "video-workers"
  location            = var.region
  deletion_protection = false # it holds nothing

  scaling {
    scaling_mode          = "MANUAL"
    manual_instance_count = var.video.workers
  }

  template {
    service_account = google_service_account.video.email

    containers {
      image = var.video.image
      args  = local.video_args

      resources {
        limits = {
          cpu    = var.video.cpu
          memory = var.video.memory
        }
      }

      dynamic "env" {
        for_each = local.video_env
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.video_secret_env
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.video[env.value].secret_id
              version = lookup(var.secret_versions, env.value, "latest")
            }
          }
        }
      }

      liveness_probe {
        period_seconds    = 15
        timeout_seconds   = 5
        failure_threshold = 4
        http_get {
          path = "/healthz"
          port = 8080
        }
      }

      dynamic "volume_mounts" {
        for_each = local.sql_instances
        content {
          name       = "cloudsql"
          mount_path = "/cloudsql"
        }
      }
    }

    dynamic "volumes" {
      for_each = local.sql_instances
      content {
        name = "cloudsql"
        cloud_sql_instance {
          instances = [volumes.value]
        }
      }
    }

    dynamic "vpc_access" {
      for_each = var.network[*]
      content {
        egress = "PRIVATE_RANGES_ONLY"
        network_interfaces {
          network    = vpc_access.value.network
          subnetwork = vpc_access.value.subnetwork
        }
      }
    }
  }

  depends_on = [google_cloud_run_v2_service.video]
}

# gcloud run jobs execute video-outbox --args=outbox,status
resource "google_cloud_run_v2_job" "video_outbox" {
  name                = "video-outbox"
  location            = var.region
  deletion_protection = false # it holds nothing

  template {
    template {
      service_account       = google_service_account.video.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0 # the next one comes soon
      timeout               = "600s"

      containers {
        image = var.video.image
        args  = ["outbox", "drain"]

        dynamic "env" {
          for_each = local.video_env
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.video["video-database-url"].secret_id
              version = lookup(var.secret_versions, "video-database-url", "latest")
            }
          }
        }

        dynamic "volume_mounts" {
          for_each = local.sql_instances
          content {
            name       = "cloudsql"
            mount_path = "/cloudsql"
          }
        }
      }

      dynamic "volumes" {
        for_each = local.sql_instances
        content {
          name = "cloudsql"
          cloud_sql_instance {
            instances = [volumes.value]
          }
        }
      }

      dynamic "vpc_access" {
        for_each = var.network[*]
        content {
          egress = "PRIVATE_RANGES_ONLY"
          network_interfaces {
            network    = vpc_access.value.network
            subnetwork = vpc_access.value.subnetwork
          }
        }
      }
    }
  }

  depends_on = [google_cloud_run_v2_job.video_migrate]
}

# The schedule's identity may run that job, and nothing else.

resource "google_service_account" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  account_id   = "video-drain"
  display_name = "video drain"
}

resource "google_cloud_run_v2_job_iam_member" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  name     = google_cloud_run_v2_job.video_outbox.name
  location = google_cloud_run_v2_job.video_outbox.location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.video_drain[0].email}"
}

resource "google_cloud_scheduler_job" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  name      = "video-drain"
  region    = var.region
  schedule  = var.video.drain_schedule
  time_zone = "Etc/UTC"

  http_target {
    http_method = "POST"
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.video_outbox.id}:run"

    oauth_token {
      service_account_email = google_service_account.video_drain[0].email
    }
  }

  depends_on = [google_cloud_run_v2_job_iam_member.video_drain]
}
