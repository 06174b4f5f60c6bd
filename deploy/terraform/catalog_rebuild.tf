# catalog's rebuild: an operator builds the read model again while the old one is served. It
# makes tables, so it runs as the owner of the schema; and it takes longer than the job
# catalog-migrate, which also runs at each release.

# A rebuild reads all of video's rows.
resource "google_cloud_run_v2_service_iam_member" "rebuild_calls_video" {
  name     = google_cloud_run_v2_service.video.name
  location = google_cloud_run_v2_service.video.location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.catalog_migrate.email}"
}

# gcloud run jobs execute catalog-rebuild --region=REGION --args=rebuild,status
resource "google_cloud_run_v2_job" "catalog_rebuild" {
  name                = "catalog-rebuild"
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
      service_account       = google_service_account.catalog_migrate.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0        # it goes on where it was, once a person has repeated it
      timeout               = "86400s" # a million rows take minutes; each step has its own bound

      containers {
        image = var.catalog.image
        args  = ["rebuild", "status"]

        resources {
          limits = local.job_limits
        }

        dynamic "env" {
          for_each = {
            VIDEO_SERVICE_ADDR = local.catalog_env.VIDEO_SERVICE_ADDR
            LOG_LEVEL          = var.log_level
            GOMEMLIMIT         = local.memory_limit.job
          }
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.catalog["catalog-admin-database-url"].secret_id
              version = lookup(var.secret_versions, "catalog-admin-database-url", "1")
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

  depends_on = [google_cloud_run_v2_job.catalog_migrate]
}
