# catalog: its permissions, its environment, its jobs. modules/service makes the service of it.

locals {
  # The variables that serve and its tools read. The connections come from secrets.
  catalog_env = {
    GOOGLE_CLOUD_PROJECT = var.project_id
    PUBSUB_ENDPOINT      = local.pubsub_endpoint
    VIDEO_SERVICE_ADDR   = "${local.video_host}:443"
    LOG_LEVEL            = var.log_level
  }
}

module "catalog" {
  source = "./modules/service"

  name       = "catalog"
  deployment = local.deployment
  settings   = var.catalog
  ingress    = local.ingress[var.catalog.ingress]

  # Readers that wait for the projection take half of an instance's places at most. The
  # other half serves readers that need not wait, and refuses further ones.
  args = concat(
    ["serve", "-max-waiting-reads=${floor(var.catalog.concurrency / 2)}"],
    [for name, value in var.catalog.flags : "-${name}=${value}"],
  )

  # With further variables of serve. No service calls catalog.
  env = merge(
    local.catalog_env,
    var.catalog.extra_environment,
    var.catalog.everybody_may_write ? local.open_env : local.users_env,
  )

  jobs = {
    # The operator's tool: gcloud run jobs execute catalog-dlq --region=REGION --args=dlq,list
    catalog-dlq = {
      args    = ["dlq", "list"]
      timeout = "86400s" # backfill and reconcile of many rows; each command bounds its own steps
      env     = local.catalog_env
    }
    # An operator builds the read model again while the old one is served. It makes tables, so it
    # runs as the owner of the schema; and it takes longer than the job catalog-migrate, which also
    # runs at each release: gcloud run jobs execute catalog-rebuild --region=REGION --args=rebuild,status
    catalog-rebuild = {
      args    = ["rebuild", "status"]
      timeout = "86400s" # a million rows take minutes; each step has its own bound
      owner   = true
      env = {
        VIDEO_SERVICE_ADDR = local.catalog_env.VIDEO_SERVICE_ADDR
        LOG_LEVEL          = var.log_level
      }
    }
  }

  sql_instances = local.sql_instances
  database      = local.reached_database
  before = [
    google_pubsub_subscription_iam_member.catalog_subscribes,
    google_pubsub_subscription_iam_member.catalog_views_subscription,
    google_pubsub_topic_iam_member.catalog_publishes_dead_letters,
  ]
}

# Permissions

resource "google_pubsub_subscription_iam_member" "catalog_subscribes" {
  for_each = local.topics

  subscription = google_pubsub_subscription.catalog[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${module.catalog.account.email}"
}

# To compare retentions when it starts, and before a replay: a subscriber may seek, but not
# look at the subscription.
resource "google_pubsub_subscription_iam_member" "catalog_views_subscription" {
  for_each = local.topics

  subscription = google_pubsub_subscription.catalog[each.key].name
  role         = "roles/pubsub.viewer"
  member       = "serviceAccount:${module.catalog.account.email}"
}

# It writes dead letters itself, and its tool reads them.
resource "google_pubsub_topic_iam_member" "catalog_publishes_dead_letters" {
  for_each = local.topics

  topic  = google_pubsub_topic.dead_letters[each.key].name
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:${module.catalog.account.email}"
}

resource "google_pubsub_subscription_iam_member" "catalog_reads_dead_letters" {
  for_each = local.topics

  subscription = google_pubsub_subscription.dead_letters[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:${module.catalog.account.email}"
}

# catalog asks video for events that it has missed, and for versions that a reader
# cannot wait for.
resource "google_cloud_run_v2_service_iam_member" "catalog_calls_video" {
  name     = module.video.service.name
  location = module.video.service.location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${module.catalog.account.email}"
}

# A rebuild reads all of video's rows.
resource "google_cloud_run_v2_service_iam_member" "rebuild_calls_video" {
  name     = module.video.service.name
  location = module.video.service.location
  role     = "roles/run.invoker"
  member   = "serviceAccount:${module.catalog.migrate_account.email}"
}
