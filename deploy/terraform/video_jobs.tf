# video's jobs: migrations, the operator's tool, and the drain, which a schedule can run in
# place of an instance that is always there.

# Migrations: a job that has to succeed before the service is changed.

# The id changes whenever the job would run something else. A return to an earlier image
# counts as something else again: an execution's name cannot be used twice.
resource "terraform_data" "video_migration" {
  triggers_replace = [
    var.video.image,
    lookup(var.secret_versions, "video-admin-database-url", "1"),
    var.network,
    local.sql_instances,
  ]
}

resource "google_cloud_run_v2_job" "video_migrate" {
  name                = "video-migrate"
  location            = var.region
  deletion_protection = false # it holds nothing

  # Creating or changing the job runs it, and waits until it has ended well.
  run_execution_token = substr(terraform_data.video_migration.id, 0, 8)

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    template {
      service_account       = google_service_account.video_migrate.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0      # a person has to look at a failed migration
      timeout               = "960s" # migrate itself gives up after 15 minutes

      containers {
        image = var.video.image
        args  = ["migrate"]

        resources {
          limits = local.job_limits
        }

        env {
          name  = "GOMEMLIMIT"
          value = local.memory_limit.job
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.video["video-admin-database-url"].secret_id
              version = lookup(var.secret_versions, "video-admin-database-url", "1")
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

  # Longer than the job may take: if Terraform gave up before, the migration would run
  # on unwatched.
  timeouts {
    create = "30m"
    update = "30m"
  }

  depends_on = [
    google_secret_manager_secret_iam_member.video,
    google_project_iam_member.sql_client,
    google_sql_database.main,
  ]
}

# The operator's tool

# gcloud run jobs execute video-outbox --region=REGION --args=outbox,status
resource "google_cloud_run_v2_job" "video_outbox" {
  name                = "video-outbox"
  location            = var.region
  deletion_protection = false # it holds nothing

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    template {
      service_account       = google_service_account.video.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0
      timeout               = "86400s" # purge and erase of many rows; each command bounds its own steps

      containers {
        image = var.video.image
        args  = ["outbox", "status"]

        resources {
          limits = local.job_limits
        }

        dynamic "env" {
          for_each = merge(local.video_env, { GOMEMLIMIT = local.memory_limit.job })
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
              version = lookup(var.secret_versions, "video-database-url", "1")
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

# The drain

# A job of its own: a failed drain is a page, an operator's wrong id in video-outbox is not.
resource "google_cloud_run_v2_job" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  name                = "video-drain"
  location            = var.region
  deletion_protection = false # it holds nothing

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    template {
      service_account       = google_service_account.video.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0      # the next one comes soon
      timeout               = "600s" # outbox drain itself gives up after 5 minutes

      containers {
        image = var.video.image
        args  = ["outbox", "drain"]

        resources {
          limits = local.job_limits
        }

        dynamic "env" {
          for_each = merge(local.video_env, { GOMEMLIMIT = local.memory_limit.job })
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
              version = lookup(var.secret_versions, "video-database-url", "1")
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

  name     = google_cloud_run_v2_job.video_drain[0].name
  location = google_cloud_run_v2_job.video_drain[0].location
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
    uri         = "https://run.googleapis.com/v2/${google_cloud_run_v2_job.video_drain[0].id}:run"

    oauth_token {
      service_account_email = google_service_account.video_drain[0].email
    }
  }

  depends_on = [google_cloud_run_v2_job_iam_member.video_drain]
}
