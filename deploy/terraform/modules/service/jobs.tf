# The service's jobs: the migrations, and jobs that a person or a schedule starts.

# Migrations: a job that has to succeed before the service is changed.

# The id changes whenever the job would run something else. A return to an earlier image
# counts as something else again: an execution's name cannot be used twice. Any other change of
# the job counts, too, because each update sends the token, and Cloud Run may refuse one that it
# has had.
resource "terraform_data" "migration" {
  triggers_replace = [
    var.settings.image,
    lookup(var.deployment.secret_versions, "${var.name}-admin-database-url", "1"),
    var.deployment.network,
    var.sql_instances,
    var.deployment.labels,
    var.deployment.binary_authorization,
  ]
}

resource "google_cloud_run_v2_job" "migrate" {
  name                = "${var.name}-migrate"
  location            = var.deployment.region
  deletion_protection = false # it holds nothing

  # Creating or changing the job runs it, and waits until it has ended well.
  run_execution_token = substr(terraform_data.migration.id, 0, 8)

  dynamic "binary_authorization" {
    for_each = var.deployment.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    template {
      service_account       = google_service_account.migrate.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0      # a person has to look at a failed migration
      timeout               = "960s" # migrate itself gives up after 15 minutes

      containers {
        image = var.settings.image
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
              secret  = google_secret_manager_secret.connections["${var.name}-admin-database-url"].secret_id
              version = lookup(var.deployment.secret_versions, "${var.name}-admin-database-url", "1")
            }
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
  }

  # Longer than the job may take: if Terraform gave up before, the migration would run
  # on unwatched.
  timeouts {
    create = "30m"
    update = "30m"
  }

  depends_on = [
    google_secret_manager_secret_iam_member.connections,
    var.database,
  ]
}

# The other jobs of var.jobs

locals {
  job_secrets = { for name, job in var.jobs : name => job.owner ? "${var.name}-admin-database-url" : "${var.name}-database-url" }
}

resource "google_cloud_run_v2_job" "jobs" {
  for_each = var.jobs

  name                = each.key
  location            = var.deployment.region
  deletion_protection = false # it holds nothing

  dynamic "binary_authorization" {
    for_each = var.deployment.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    template {
      service_account       = each.value.owner ? google_service_account.migrate.email : google_service_account.service.email
      execution_environment = "EXECUTION_ENVIRONMENT_GEN2"
      max_retries           = 0 # a person repeats it, or the schedule
      timeout               = each.value.timeout

      containers {
        image = var.settings.image
        args  = each.value.args

        resources {
          limits = local.job_limits
        }

        dynamic "env" {
          for_each = merge(each.value.env, { GOMEMLIMIT = local.memory_limit.job })
          content {
            name  = env.key
            value = env.value
          }
        }

        env {
          name = "DATABASE_URL"
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.connections[local.job_secrets[each.key]].secret_id
              version = lookup(var.deployment.secret_versions, local.job_secrets[each.key], "1")
            }
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
  }

  depends_on = [google_cloud_run_v2_job.migrate]
}

