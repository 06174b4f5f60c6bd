# What TestTerraform applies: every setting of a topic, a subscription and a schema
# that the local Pub/Sub keeps, and members on each.

terraform {
  required_version = ">= 1.9"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.18, < 9.0"
    }
  }
}

provider "google" {
  project = "test"
}

resource "google_pubsub_schema" "event" {
  name       = "event"
  type       = "PROTOCOL_BUFFER"
  definition = var.definition
}

resource "google_pubsub_topic" "events" {
  name                       = "events"
  message_retention_duration = var.topic_retention
  labels                     = var.labels

  message_storage_policy {
    allowed_persistence_regions = ["europe-west1"]
  }
  schema_settings {
    schema   = google_pubsub_schema.event.id
    encoding = "BINARY"
  }
}

resource "google_pubsub_topic" "dead" {
  name = "events.worker.dlq"
}

resource "google_pubsub_subscription" "worker" {
  name                         = "events.worker"
  topic                        = google_pubsub_topic.events.id
  ack_deadline_seconds         = var.ack_deadline_seconds
  message_retention_duration   = "604800s"
  retain_acked_messages        = true
  enable_message_ordering      = true
  enable_exactly_once_delivery = true
  filter                       = "attributes.kind = \"a\" AND NOT hasPrefix(attributes.tenant, \"x\")"
  labels                       = var.labels

  expiration_policy {
    ttl = "" # never
  }
  retry_policy {
    minimum_backoff = var.minimum_backoff
    maximum_backoff = "600s"
  }
  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.dead.id
    max_delivery_attempts = var.max_delivery_attempts
  }
}

# As few settings as there can be, so that the defaults are the service's own.
resource "google_pubsub_subscription" "dead" {
  name  = google_pubsub_topic.dead.name
  topic = google_pubsub_topic.dead.id
}

resource "google_pubsub_topic_iam_member" "publisher" {
  topic  = google_pubsub_topic.events.id
  role   = "roles/pubsub.publisher"
  member = "serviceAccount:video@test.iam.gserviceaccount.com"
}

resource "google_pubsub_topic_iam_member" "viewer" {
  topic  = google_pubsub_topic.events.id
  role   = "roles/pubsub.viewer"
  member = "group:readers@example.com"
}

resource "google_pubsub_subscription_iam_member" "subscriber" {
  subscription = google_pubsub_subscription.worker.id
  role         = "roles/pubsub.subscriber"
  member       = "serviceAccount:worker@test.iam.gserviceaccount.com"
}

resource "google_pubsub_schema_iam_member" "viewer" {
  schema = google_pubsub_schema.event.id
  role   = "roles/pubsub.viewer"
  member = "serviceAccount:worker@test.iam.gserviceaccount.com"
}
