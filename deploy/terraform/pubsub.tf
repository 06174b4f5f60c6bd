# Topics, subscriptions and dead letters. The permissions to publish and to subscribe
# are in the files of the services. cmd/dev provision makes the same in a local Pub/Sub.

locals {
  # A topic for each kind of aggregate. The list is in internal/topics, from which `make generate`
  # makes the file.
  topics = toset(jsondecode(file("${path.module}/topics.json")))

  # The global endpoint may take a key's messages in two regions, without an order.
  pubsub_endpoint = "${var.region}-pubsub.googleapis.com:443"

  # Pub/Sub's own identity in this project.
  pubsub_agent = "serviceAccount:service-${var.project_number}@gcp-sa-pubsub.iam.gserviceaccount.com"

  # The number of days for which catalog remembers applied events. A test compares the
  # number with the code (inbox.Retention). A replay must not reach further back than
  # this number of days.
  inbox_retention_days = 32

  # As seconds, the one form that Pub/Sub takes.
  retention = "${var.retention_days * 86400}s"

  pubsub_deletion_policy = var.deletion_protection ? "PREVENT" : "DELETE"
}

# cmd/schema makes the definitions from proto/. A changed one is a new revision; the
# topic takes messages of each. A release may add one (ci.tf).
resource "google_pubsub_schema" "events" {
  for_each = local.topics

  name       = replace(each.key, ".", "-")
  type       = "PROTOCOL_BUFFER"
  definition = file("${path.module}/../schemas/${replace(each.key, ".", "_")}.proto")
}

resource "google_pubsub_topic" "events" {
  for_each = local.topics

  name            = each.key
  deletion_policy = local.pubsub_deletion_policy

  message_storage_policy {
    allowed_persistence_regions = [var.region]
    enforce_in_transit          = true # publishing and subscribing by way of another region are refused
  }

  schema_settings {
    schema   = google_pubsub_schema.events[each.key].id
    encoding = "BINARY"
  }
}

resource "google_pubsub_subscription" "catalog" {
  for_each = local.topics

  name                         = "${each.key}.catalog"
  topic                        = google_pubsub_topic.events[each.key].id
  ack_deadline_seconds         = 60
  enable_message_ordering      = true
  enable_exactly_once_delivery = var.exactly_once
  retain_acked_messages        = true # so that it can be replayed
  message_retention_duration   = local.retention
  deletion_policy              = local.pubsub_deletion_policy

  expiration_policy {
    ttl = "" # never; without this block it goes after 31 days without a subscriber
  }

  retry_policy {
    minimum_backoff = "1s"
    maximum_backoff = "60s"
  }

  # A backstop: catalog writes dead letters itself, with the reason, after five
  # failures of the event's own. An outage must not use these up.
  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead_letters[each.key].id
    max_delivery_attempts = 100
  }

  lifecycle {
    precondition {
      condition     = var.retention_days < local.inbox_retention_days
      error_message = "A replay would bring events that catalog's inbox has forgotten: retention_days must be below ${local.inbox_retention_days}."
    }
  }
}

resource "google_pubsub_topic" "dead_letters" {
  for_each = local.topics

  name            = "${each.key}.catalog.dlq"
  deletion_policy = local.pubsub_deletion_policy

  message_storage_policy {
    allowed_persistence_regions = [var.region]
    enforce_in_transit          = true # publishing and subscribing by way of another region are refused
  }
}

# Without a subscription a topic keeps nothing.
resource "google_pubsub_subscription" "dead_letters" {
  for_each = local.topics

  name                       = "${each.key}.catalog.dlq"
  topic                      = google_pubsub_topic.dead_letters[each.key].id
  ack_deadline_seconds       = 60
  message_retention_duration = "2678400s" # 31 days, the most there is: a person has to look
  deletion_policy            = local.pubsub_deletion_policy

  expiration_policy {
    ttl = ""
  }
}

# Without these two grants Pub/Sub accepts the dead-letter policy and never acts on it.
resource "google_pubsub_topic_iam_member" "agent_publishes_dead_letters" {
  for_each = local.topics

  topic  = google_pubsub_topic.dead_letters[each.key].name
  role   = "roles/pubsub.publisher"
  member = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "agent_acknowledges" {
  for_each = local.topics

  subscription = google_pubsub_subscription.catalog[each.key].name
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
