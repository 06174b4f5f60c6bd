# video: its identities, their permissions, its secrets, and the service.

locals {
  video_secrets = toset(concat(
    ["video-database-url", "video-admin-database-url"],
    var.transaction_pooler ? ["video-listen-database-url"] : [],
  ))

  # The variables that serve and its tools read. The connections come from secrets.
  video_env = {
    GOOGLE_CLOUD_PROJECT = var.project_id
    PUBSUB_ENDPOINT      = local.pubsub_endpoint
    LOG_LEVEL            = var.log_level
    GOMEMLIMIT           = local.memory_limit.video
  }
  # Further ones of serve. catalog, its workers and its jobs are two accounts, which alone
  # may read as a service does: a rebuild runs as the account of migrations.
  video_serve_env = merge(
    local.video_env,
    var.video.extra_environment,
    var.video.everybody_may_write ? local.open_env : merge(local.users_env, {
      AUTH_SERVICE_AUDIENCE = "https://${local.video_host}"
      AUTH_SERVICES         = join(",", [google_service_account.catalog.email, google_service_account.catalog_migrate.email])
    }),
  )
  video_secret_env = merge(
    { DATABASE_URL = "video-database-url" },
    var.transaction_pooler ? { LISTEN_DATABASE_URL = "video-listen-database-url" } : {},
  )

  # The name that Cloud Run gives to each service of a project and region. catalog gets it
  # from here, because a reference to the service would make Terraform update the writer
  # before the reader.
  video_host = "video-${var.project_number}.${var.region}.run.app"

  # Published events stay in the outbox as long as in Pub/Sub.
  video_args = concat(["serve", "-outbox-retention=${var.retention_days * 24}h"],
  var.video.canary_seconds == 0 ? [] : ["-canary-interval=${var.video.canary_seconds}s"])
}

# Identity

resource "google_service_account" "video" {
  account_id   = "video-service"
  display_name = "video"
}

# Changes the schema, and nothing else: it cannot publish.
resource "google_service_account" "video_migrate" {
  account_id   = "video-migrate"
  display_name = "video migrate"
}

# Permissions

resource "google_pubsub_topic_iam_member" "video_publishes" {
  for_each = local.topics

  topic  = google_pubsub_topic.events[each.key].name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:${google_service_account.video.email}"
}

# catalog asks video for events that it has missed, and for versions that a reader
# cannot wait for.
resource "google_cloud_run_v2_service_iam_member" "catalog_calls_video" {
  name     = google_cloud_run_v2_service.video.name
  location = google_cloud_run_v2_service.video.location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${google_service_account.catalog.email}"
}

resource "google_cloud_run_v2_service_iam_member" "video_invokers" {
  for_each = var.video.public ? toset(["allUsers"]) : var.video.invokers

  name     = google_cloud_run_v2_service.video.name
  location = google_cloud_run_v2_service.video.location
  role     = "roles/run.invoker"
  member   = each.value
}

# Secrets: made here, filled by hand, read by one identity each.

resource "google_secret_manager_secret" "video" {
  for_each = local.video_secrets

  secret_id       = each.value
  deletion_policy = var.deletion_protection ? "PREVENT" : "DELETE"

  replication {
    user_managed {
      replicas {
        location = var.region
      }
    }
  }
}

resource "google_secret_manager_secret_iam_member" "video" {
  for_each = local.video_secrets

  secret_id = google_secret_manager_secret.video[each.value].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member = "serviceAccount:${
    each.value == "video-admin-database-url" ? google_service_account.video_migrate.email : google_service_account.video.email
  }"
}

# The service

resource "google_cloud_run_v2_service" "video" {
  name                = "video"
  location            = var.region
  ingress             = local.ingress[var.video.ingress] # IAM decides which of these callers are let in
  deletion_protection = var.deletion_protection
  # The audience of catalog's ID tokens: it calls this address.
  custom_audiences = ["https://${local.video_host}"]

  # Of all revisions that get requests together: during a rollout the database sees
  # the pools of one instance more, the new revision's first.
  scaling {
    min_instance_count = var.video.min_instances
    max_instance_count = var.video.max_instances
  }

  dynamic "binary_authorization" {
    for_each = var.binary_authorization ? [true] : []
    content {
      use_default = true
    }
  }

  template {
    # A new revision for each run of the migrations: one that has failed is not tried
    # again by itself.
    annotations = { migration = terraform_data.video_migration.id }
    labels      = var.labels # of the revision: default_labels are of the service alone

    service_account                  = google_service_account.video.email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    max_instance_request_concurrency = var.video.concurrency
    timeout                          = "60s"

    # The limit holds also for a revision without traffic, which relays all the same.
    scaling {
      max_instance_count = var.video.max_instances
    }

    containers {
      name  = "video"
      image = var.video.image
      args  = local.video_args

      ports {
        name           = "h2c" # HTTP/2 to the container: gRPC and REST on one port
        container_port = local.api_port
      }

      resources {
        limits = {
          cpu    = var.video.cpu
          memory = var.video.memory
        }
        cpu_idle          = false # CPU always allocated: the relay works between requests
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = merge(local.video_serve_env, { ADMIN_PORT = tostring(local.admin_port) })
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
              version = lookup(var.secret_versions, env.value, "1")
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
        for_each = local.sql_instances
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
        depends_on = ["video"] # it is ready then, and stops after the collector's last look
        resources {
          limits   = local.collector_limits
          cpu_idle = false
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

  traffic {
    type    = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"
    percent = 100
  }

  # A release goes from the schemas to the reader to the writer: a reader that is older
  # than the writer's events leaves rows incomplete until it is replaced. A subscription
  # does not get messages that were published before it existed.
  depends_on = [
    google_cloud_run_v2_service.catalog,
    google_cloud_run_v2_worker_pool.catalog,
    google_cloud_run_v2_job.video_migrate,
    google_pubsub_subscription.catalog,
    google_pubsub_topic_iam_member.video_publishes,
    google_secret_manager_secret_iam_member.video,
  ]
}
