# A Postgres of Cloud SQL, when var.cloud_sql asks for one. Passwords are set by
# hand and live in the connection secrets only: the state never sees one.

locals {
  # The disk never shrinks, so every byte that it once grew to is paid for from then on.
  disk_limit_gb = try(coalesce(var.cloud_sql.disk_limit_gb, 10 * var.cloud_sql.disk_gb), 0)

  # All instances that may be open at once: of each service max_instances, the first one of
  # a new revision and a spare one, and the workers of two revisions. Cloud Run may start more
  # than max_instances for a short time. Google does not document how many, and how many
  # workers run in parallel.
  connections = local.other_connections + local.instance_connections * sum([
    for service in [var.video, var.catalog] : service.max_instances + 2 + 2 * service.workers
  ])

  # Four for requests, five for loops and readiness, one for LISTEN.
  instance_connections = 10

  # The connections that Postgres keeps for superusers, and those of Cloud SQL itself,
  # of jobs and of a person.
  other_connections = 20

  # Mounted below /cloudsql in each container.
  sql_instances = google_sql_database_instance.main[*].connection_name

  # What a migration needs to reach the database.
  reached_database = [google_project_iam_member.sql_client, google_sql_database.main]

  # Static names, so that a plan knows them.
  sql_clients = var.cloud_sql == null ? {} : {
    video           = module.video.account.email
    video-migrate   = module.video.migrate_account.email
    catalog         = module.catalog.account.email
    catalog-migrate = module.catalog.migrate_account.email
  }
}

resource "google_sql_database_instance" "main" {
  count = var.cloud_sql == null ? 0 : 1

  name                = "lockstep"
  region              = var.region
  database_version    = "POSTGRES_17"
  deletion_protection = var.deletion_protection

  settings {
    edition                     = "ENTERPRISE"
    tier                        = var.cloud_sql.tier
    availability_type           = var.cloud_sql.high_availability ? "REGIONAL" : "ZONAL"
    disk_size                   = var.cloud_sql.disk_gb
    disk_autoresize             = true
    disk_autoresize_limit       = local.disk_limit_gb
    deletion_protection_enabled = var.deletion_protection
    user_labels                 = var.labels # default_labels do not reach it
    connector_enforcement       = "REQUIRED" # no connection without an IAM permission

    maintenance_window {
      day          = var.cloud_sql.maintenance.day
      hour         = var.cloud_sql.maintenance.hour
      update_track = "stable"
    }

    # The limit that the instances are counted against, independent of Google's default.
    database_flags {
      name  = "max_connections"
      value = tostring(var.cloud_sql.max_connections)
    }

    # Log each session that waits for a lock, with the session that holds it.
    database_flags {
      name  = "log_lock_waits"
      value = "on"
    }

    ip_configuration {
      ipv4_enabled = true # an address for connectors; no network is authorized
      ssl_mode     = "ENCRYPTED_ONLY"
    }

    backup_configuration {
      enabled                        = true
      location                       = var.region # not the multi-region around it
      point_in_time_recovery_enabled = true
      transaction_log_retention_days = 7

      backup_retention_settings {
        retained_backups = 14
      }
    }

    insights_config {
      query_insights_enabled = true
    }
  }

  lifecycle {
    # It grows by itself.
    ignore_changes = [settings[0].disk_size]
  }
}

resource "google_sql_database" "main" {
  count = var.cloud_sql == null ? 0 : 1

  name     = "lockstep"
  instance = google_sql_database_instance.main[0].name

  # It goes with its instance: Cloud SQL refuses to delete it alone while a session
  # of a service that has just been deleted is left.
  deletion_policy = "ABANDON"
}

# The role exists for projects only; the condition narrows it to this instance.
resource "google_project_iam_member" "sql_client" {
  for_each = local.sql_clients

  project = var.project_id
  role    = "roles/cloudsql.client"
  member  = "serviceAccount:${each.value}"

  condition {
    title      = "this instance only"
    expression = "resource.type == 'sqladmin.googleapis.com/Instance' && resource.name == 'projects/${var.project_id}/instances/lockstep'"
  }
}
