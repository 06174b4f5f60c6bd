# catalog's jobs: migrations, and the operator's tool.

# Migrations: a job that has to succeed before the service is changed.

# The id changes whenever the job would run something else. A return to an earlier image
# counts as something else again: an execution's name cannot be used twice.
resource "terraform_data" "catalog_migration" {
  triggers_replace = [
    var.catalog.image,
    lookup(var.secret_versions, "catalog-admin-database-url", "1"),
    var.network,
    local.sql_instances,
  ]
}

resource "google_cloud_run_v2_job" "catalog_migrate" {
  name                = "catalog-migrate"
  location            = var.region
  deletion_protection = false # it holds nothing

  # Creating or changing the job runs it, and waits until it has ended well.
  run_execution_token = substr(terraform_data.catalog_migration.id, 0, 8)

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
      max_retries           = 0      # a person has to look at a failed migration
      timeout               = "960s" # migrate itself gives up after 15 minutes

      containers {
        image = var.catalog.image
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

  # Longer than the job may take: if Terraform gave up before, the migration would run
  # on unwatched.
  timeouts {
    create = "30m"
    update = "30m"
  }

  depends_on = [
    google_secret_manager_secret_iam_member.catalog,
    google_project_iam_member.sql_client,
    google_sql_database.main,
  ]
}

# The operator's tool

# gcloud run jobs execute catalog-dlq --region=REGION --args=dlq,list
resource "google_cloud_run_v2_job" "catalog_dlq" {
  name                = "catalog-dlq"
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
      service_account       = google_service_account.catalog.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0
      timeout               = "86400s" # backfill and reconcile of many rows; each command bounds its own steps

      containers {
        image = var.catalog.image
        args  = ["dlq", "list"]

        resources {
          limits = local.job_limits
        }

        dynamic "env" {
          for_each = merge(local.catalog_env, { GOMEMLIMIT = local.memory_limit.job })
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.catalog["catalog-database-url"].secret_id
              version = lookup(var.secret_versions, "catalog-database-url", "1")
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
