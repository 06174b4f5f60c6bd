# catalog: its identities, their permissions, its secrets, and the service.

locals {
  catalog_secrets = toset(concat(
    ["catalog-database-url", "catalog-admin-database-url"],
    var.transaction_pooler ? ["catalog-listen-database-url"] : [],
  ))

  # The variables that serve and its tools read. The connections come from secrets.
  catalog_env = {
    GOOGLE_CLOUD_PROJECT = var.project_id
    PUBSUB_ENDPOINT      = local.pubsub_endpoint
    VIDEO_SERVICE_ADDR   = "${local.video_host}:443"
    LOG_LEVEL            = var.log_level
    GOMEMLIMIT           = local.memory_limit.catalog
  }
  # Further ones of serve. No service calls catalog.
  catalog_serve_env = merge(
    local.catalog_env,
    var.catalog.extra_environment,
    var.catalog.everybody_may_write ? local.open_env : local.users_env,
  )
  catalog_secret_env = merge(
    { DATABASE_URL = "catalog-database-url" },
    var.transaction_pooler ? { LISTEN_DATABASE_URL = "catalog-listen-database-url" } : {},
  )

  # Readers that wait for the projection take half of an instance's places at most. The
  # other half serves readers that need not wait, and refuses further ones.
  catalog_args = ["serve", "-max-waiting-reads=${floor(var.catalog.concurrency / 2)}"]
}

# Identity

resource "google_service_account" "catalog" {
  account_id   = "catalog-service"
  display_name = "catalog"
}

# Owns the schema: migrates it, and rebuilds its tables. It cannot subscribe.
resource "google_service_account" "catalog_migrate" {
  account_id   = "catalog-migrate"
  display_name = "catalog migrate"
}

# Permissions

resource "google_pubsub_subscription_iam_member" "catalog_subscribes" {
  for_each = local.topics

  subscription = google_pubsub_subscription.catalog[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${google_service_account.catalog.email}"
}

# To compare retentions when it starts, and before a replay: a subscriber may seek, but not
# look at the subscription.
resource "google_pubsub_subscription_iam_member" "catalog_views_subscription" {
  for_each = local.topics

  subscription = google_pubsub_subscription.catalog[each.key].name
  role         = "roles/pubsub.viewer"
  member       = "serviceAccount:${google_service_account.catalog.email}"
}

# It writes dead letters itself, and its tool reads them.
resource "google_pubsub_topic_iam_member" "catalog_publishes_dead_letters" {
  for_each = local.topics

  topic  = google_pubsub_topic.dead_letters[each.key].name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:${google_service_account.catalog.email}"
}

resource "google_pubsub_subscription_iam_member" "catalog_reads_dead_letters" {
  for_each = local.topics

  subscription = google_pubsub_subscription.dead_letters[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${google_service_account.catalog.email}"
}

resource "google_cloud_run_v2_service_iam_member" "catalog_invokers" {
  for_each = var.catalog.public ? toset(["allUsers"]) : var.catalog.invokers

  name     = google_cloud_run_v2_service.catalog.name
  location = google_cloud_run_v2_service.catalog.location
  role     = "roles/run.invoker"
  member   = each.value
}

# Secrets: made here, filled by hand, read by one identity each.

resource "google_secret_manager_secret" "catalog" {
  for_each = local.catalog_secrets

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

resource "google_secret_manager_secret_iam_member" "catalog" {
  for_each = local.catalog_secrets

  secret_id = google_secret_manager_secret.catalog[each.value].secret_id
  role      = "roles/secretmanager.secretAccessor"
  member = "serviceAccount:${
    each.value == "catalog-admin-database-url" ? google_service_account.catalog_migrate.email : google_service_account.catalog.email
  }"
}

# The service

resource "google_cloud_run_v2_service" "catalog" {
  name                = "catalog"
  location            = var.region
  ingress             = local.ingress[var.catalog.ingress] # IAM decides which of these callers are let in
  deletion_protection = var.deletion_protection

  # Of all revisions that get requests together: during a rollout the database sees
  # the pools of one instance more, the new revision's first.
  scaling {
    min_instance_count = var.catalog.min_instances
    max_instance_count = var.catalog.max_instances
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
    annotations = { migration = terraform_data.catalog_migration.id }
    labels      = var.labels # of the revision: default_labels are of the service alone

    service_account                  = google_service_account.catalog.email
    execution_environment            = "EXECUTION_ENVIRONMENT_GEN2"
    max_instance_request_concurrency = var.catalog.concurrency
    timeout                          = "60s"

    # The limit holds also for a revision without traffic, which consumes all the same.
    scaling {
      max_instance_count = var.catalog.max_instances
    }

    containers {
      name  = "catalog"
      image = var.catalog.image
      args  = local.catalog_args

      ports {
        name           = "h2c" # HTTP/2 to the container: gRPC and REST on one port
        container_port = local.api_port
      }

      resources {
        limits = {
          cpu    = var.catalog.cpu
          memory = var.catalog.memory
        }
        cpu_idle          = false # CPU always allocated: the consumer works between requests
        startup_cpu_boost = true
      }

      dynamic "env" {
        for_each = merge(local.catalog_serve_env, { ADMIN_PORT = tostring(local.admin_port) })
        content {
          name  = env.key
          value = env.value
        }
      }

      dynamic "env" {
        for_each = local.catalog_secret_env
        content {
          name = env.key
          value_source {
            secret_key_ref {
              secret  = google_secret_manager_secret.catalog[env.value].secret_id
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
        depends_on = ["catalog"] # it is ready then, and stops after the collector's last look
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

  depends_on = [
    google_cloud_run_v2_job.catalog_migrate,
    google_pubsub_subscription_iam_member.catalog_subscribes,
    google_pubsub_subscription_iam_member.catalog_views_subscription,
    google_pubsub_topic_iam_member.catalog_publishes_dead_letters,
    google_secret_manager_secret_iam_member.catalog,
  ]
}
