# A service: its identities, its secrets, and the service itself. Its workers and its jobs are in the files beside this one.

locals {
  secrets = toset(concat(
    ["${var.name}-database-url", "${var.name}-admin-database-url"],
    var.deployment.transaction_pooler ? ["${var.name}-listen-database-url"] : [],
  ))
  secret_env = merge(
    { DATABASE_URL = "${var.name}-database-url" },
    var.deployment.transaction_pooler ? { LISTEN_DATABASE_URL = "${var.name}-listen-database-url" } : {},
  )

  # Of the service and of its workers.
  env = merge(var.env, { GOMEMLIMIT = local.memory_limit.service })

  # The remaining tenth of the memory is for memory that Go's runtime does not count.
  memory_limit = {
    for name, memory in { service = var.settings.memory, job = local.job_limits.memory } :
    name => "${floor(0.9 * tonumber(regex("^[0-9]+", memory)) * (endswith(memory, "Gi") ? 1024 : 1))}MiB"
  }

  job_limits = { cpu = "1", memory = "512Mi" }

  # Health, readiness and metrics: Cloud Run routes requests from outside to the port of
  # the API only, and its probes reach both. The collector of metrics looks at 8080. A
  # worker has no address, and all of it is there.
  admin_port = 8080
  api_port   = 8081

  # Google's collector for Prometheus, a second container of each instance.
  collector = var.deployment.metrics_sidecar_image == "" ? [] : [var.deployment.metrics_sidecar_image]

  # Where CPU is always allocated, Cloud Run takes no container with less.
  collector_limits = { cpu = "1", memory = "512Mi" }
}

# Identity

resource "google_service_account" "service" {
  account_id   = "${var.name}-service"
  display_name = var.name
}

# Owns the schema. It cannot publish, and it cannot subscribe.
resource "google_service_account" "migrate" {
  account_id   = "${var.name}-migrate"
  display_name = "${var.name} migrate"
}

# Callers

resource "google_cloud_run_v2_service_iam_member" "invokers" {
  for_each = var.settings.public ? toset(["allUsers"]) : var.settings.invokers

  name     = google_cloud_run_v2_service.service.name
  location = google_cloud_run_v2_service.service.location
  role     = "roles/run.invoker"
  member   = each.value
}

# Secrets: made here, filled by hand, read by one identity each.

resource "google_secret_manager_secret" "connections" {
  for_each = local.secrets

  secret_id       = each.value
  deletion_policy = var.deployment.deletion_protection ? "PREVENT" : "DELETE"

  replication {
    user_managed {
      replicas {
        location = var.deployment.region
      }
    }
  }
}

resource "google_secret_manager_secret_iam_member" "connections" {
  for_each = local.secrets

  secret_id = google_secret_manager_secret.connections[each.value].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member = "serviceAccount:${
    each.value == "${var.name}-admin-database-url" ? google_service_account.migrate.email : google_service_account.service.email
  }"
}

# The service

resource "google_cloud_run_v2_service" "service" {
  name                = var.name
  location            = var.deployment.region
  ingress             = var.ingress
  deletion_protection = var.deployment.deletion_protection
  custom_audiences    = var.custom_audiences

  # Of all revisions that get requests together: during a rollout the database sees
  # the pools of one instance more, the new revision's first.
  scaling {
    min_instance_count = var.settings.min_instances
    max_instance_count = var.settings.max_instances
  }

  dynamic "binary_authorization" {
    for_each = var.deployment.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    # Each run of the migrations makes a new revision, because Cloud Run does not try a failed
    # revision again by itself.
    annotations = { migration = terraform_data.migration.id }
    labels      = var.deployment.labels # of the revision: default_labels are of the service alone

    service_account                  = google_service_account.service.email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    max_instance_request_concurrency = var.settings.concurrency
    timeout                          = "60s"

    # The limit holds also for a revision without traffic, which relays or consumes all the same.
    scaling {
      max_instance_count = var.settings.max_instances
    }

    containers {
      name  = var.name
      image = var.settings.image
      args  = var.args

      ports {
        name           = "h2c" # HTTP/2 to the container: gRPC and REST on one port
        container_port = local.api_port
      }

      resources {
        limits = {
          cpu    = var.settings.cpu
          memory = var.settings.memory
        }
        cpu_idle          = false # CPU always allocated: relay and consumer work between requests
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = merge(local.env, { ADMIN_PORT = tostring(local.admin_port) })
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

      # Migrated, and the database within reach: until then it gets no request, and
      # the revision before it goes on.
      startup_probe {
        period_seconds    = 3
        timeout_seconds   = 2
        failure_threshold = 40
        http_get {
          path = "/readyz"
          port = local.admin_port
        }
      }

      # A loop has sent no heartbeat for five minutes: a restart may help.
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

    dynamic "containers" {
      for_each = local.collector
      content {
        name       = "metrics"
        image      = containers.value
        depends_on = [var.name] # it is ready then, and stops after the collector's last look
        resources {
          limits   = local.collector_limits
          cpu_idle = false
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

  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = 100
  }

  depends_on = [
    google_cloud_run_v2_job.migrate,
    google_secret_manager_secret_iam_member.connections,
    var.before,
  ]
}
