# video: its permissions, its environment, its jobs. modules/service makes the service of it.

locals {
  # The variables that serve and its tools read. The connections come from secrets.
  video_env = {
    GOOGLE_CLOUD_PROJECT = var.project_id
    PUBSUB_ENDPOINT      = local.pubsub_endpoint
    LOG_LEVEL            = var.log_level
  }

  # The name that Cloud Run gives to each service of a project and region. catalog gets it
  # from here, because a reference to the service would make Terraform update the writer
  # before the reader.
  video_host = "video-${var.project_number}.${var.region}.run.app"

  # The job of the drain: a list of one, or an empty one.
  drain = [for name, job in module.video.jobs : job if name == "video-drain"]
}

module "video" {
  source = "./modules/service"

  name             = "video"
  deployment       = local.deployment
  settings         = var.video
  ingress          = local.ingress[var.video.ingress]
  custom_audiences = ["https://${local.video_host}"] # that of catalog's ID tokens: it calls this address

  # Published events stay in the outbox as long as in Pub/Sub.
  args = concat(
    ["serve", "-outbox-retention=${var.retention_days * 24}h"],
    var.video.canary_seconds == 0 ? [] : ["-canary-interval=${var.video.canary_seconds}s"],
    [for name, value in var.video.flags : "-${name}=${value}"],
  )

  # With further variables of serve. catalog, its workers and its jobs are two accounts, which alone
  # may read as a service does: a rebuild runs as the account of migrations.
  env = merge(
    local.video_env,
    var.video.extra_environment,
    var.video.everybody_may_write ? local.open_env : merge(local.users_env, {
      AUTH_SERVICE_AUDIENCE = "https://${local.video_host}"
      AUTH_SERVICES         = join(",", [module.catalog.account.email, module.catalog.migrate_account.email])
    }),
  )

  jobs = merge(
    {
      # The operator's tool: gcloud run jobs execute video-outbox --region=REGION --args=outbox,status
      video-outbox = {
        args    = ["outbox", "status"]
        timeout = "86400s" # purge and erase of many rows; each command bounds its own steps
        env     = local.video_env
      }
    },
    var.video.drain_schedule == null ? {} : {
      # The drain has a job of its own, because a failed drain is a page. A failed command of an
      # operator, such as one with a wrong id, fails the job video-outbox, and that is no page.
      video-drain = {
        args    = ["outbox", "drain"]
        timeout = "600s" # outbox drain itself gives up after 5 minutes
        env     = local.video_env
      }
    },
  )

  sql_instances = local.sql_instances
  database      = local.reached_database
  # A release goes from the schemas to the reader to the writer: a reader that is older
  # than the writer's events leaves rows incomplete until it is replaced. A subscription
  # does not get messages that were published before it existed.
  before = [
    module.catalog.service,
    module.catalog.workers,
    google_pubsub_subscription.catalog,
    google_pubsub_topic_iam_member.video_publishes,
  ]
}

# Permissions

resource "google_pubsub_topic_iam_member" "video_publishes" {
  for_each = local.topics

  topic  = google_pubsub_topic.events[each.key].name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:${module.video.account.email}"
}

# The schedule of the drain, which can take the place of an instance that is always there. Its
# identity may run that job, and nothing else.

resource "google_service_account" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  account_id   = "video-drain"
  display_name = "video drain"
}

resource "google_cloud_run_v2_job_iam_member" "video_drain" {
  count = var.video.drain_schedule == null ? 0 : 1

  name     = local.drain[0].name
  location = local.drain[0].location
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
    uri         = "https://run.googleapis.com/v2/${local.drain[0].id}:run"

    oauth_token {
      service_account_email = google_service_account.video_drain[0].email
    }
  }

  depends_on = [google_cloud_run_v2_job_iam_member.video_drain]
}
