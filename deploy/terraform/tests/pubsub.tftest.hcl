# Topics, subscriptions, dead letters.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "acme-test"
  project_number = "123456789012"
  auth_issuer    = "https://issuer.example.com/auth/v1"
  auth_audience  = "authenticated"
  video          = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
  catalog        = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111" }
}

run "pubsub" {
  command = apply # against mocks: ids exist, so what refers to what can be told

  assert {
    condition     = toset([for topic in google_pubsub_topic.events : topic.name]) == toset(jsondecode(file("topics.json")))
    error_message = "The topics are part of the contract: those of topics.json."
  }
  assert {
    condition = alltrue([
      for topic in google_pubsub_topic.events :
      topic.schema_settings[0].schema == google_pubsub_schema.events[topic.name].id && topic.schema_settings[0].encoding == "BINARY" &&
      google_pubsub_schema.events[topic.name].type == "PROTOCOL_BUFFER"
    ])
    error_message = "Each topic must have its schema, for binary messages: one for JSON would refuse every event."
  }
  assert {
    condition = alltrue([
      for topic in concat(values(google_pubsub_topic.events), values(google_pubsub_topic.dead_letters)) :
      topic.message_storage_policy[0].allowed_persistence_regions == toset([var.region]) && topic.message_storage_policy[0].enforce_in_transit
    ])
    error_message = "Messages must stay in the region, and come in there: the order of a key holds within one region only."
  }
  assert {
    condition     = local.pubsub_endpoint == "europe-west1-pubsub.googleapis.com:443"
    error_message = "The endpoint must be the region's: the order of a key holds within one region only."
  }

  assert {
    condition     = alltrue([for topic, subscription in google_pubsub_subscription.catalog : subscription.name == "${topic}.catalog" && subscription.topic == google_pubsub_topic.events[topic].id])
    error_message = "A subscription must be named <topic>.catalog and be on that topic."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : subscription.enable_message_ordering])
    error_message = "Ordering must be on, from the start: it cannot be changed later."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : subscription.retain_acked_messages])
    error_message = "Acknowledged messages must be retained, or nothing can be replayed."
  }
  assert {
    condition = alltrue([
      for subscription in concat(values(google_pubsub_subscription.catalog), values(google_pubsub_subscription.dead_letters)) :
      subscription.expiration_policy[0].ttl == ""
    ])
    error_message = "A subscription must never expire: its messages would go with it."
  }
  assert {
    condition = alltrue([
      for subscription in google_pubsub_subscription.catalog :
      subscription.retry_policy[0].minimum_backoff == "1s" && subscription.retry_policy[0].maximum_backoff == "60s"
    ])
    error_message = "Redelivery must back off, from 1 s to 60 s."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : !subscription.enable_exactly_once_delivery])
    error_message = "Exactly-once delivery is for those who ask for it."
  }

  # The backstop, and where it leads.
  assert {
    condition = alltrue([
      for topic, subscription in google_pubsub_subscription.catalog :
      subscription.dead_letter_policy[0].dead_letter_topic == google_pubsub_topic.dead_letters[topic].id &&
      subscription.dead_letter_policy[0].max_delivery_attempts == 100
    ])
    error_message = "After 100 attempts, and no fewer, a message must go to the subscription's own dead letters."
  }
  assert {
    condition = alltrue([
      for topic, dead in google_pubsub_topic.dead_letters :
      dead.name == "${google_pubsub_subscription.catalog[topic].name}.dlq" &&
      try(google_pubsub_subscription.dead_letters[topic].name == dead.name && google_pubsub_subscription.dead_letters[topic].topic == dead.id, false)
    ])
    error_message = "Each dead-letter topic must be named <subscription>.dlq and have a subscription of its name: without one it keeps nothing."
  }
  assert {
    condition = alltrue([
      for topic in keys(google_pubsub_topic.dead_letters) :
      google_pubsub_topic_iam_member.agent_publishes_dead_letters[topic].member == local.pubsub_agent &&
      google_pubsub_topic_iam_member.agent_publishes_dead_letters[topic].topic == google_pubsub_topic.dead_letters[topic].name &&
      google_pubsub_topic_iam_member.agent_publishes_dead_letters[topic].role == "roles/pubsub.publisher" &&
      google_pubsub_subscription_iam_member.agent_acknowledges[topic].member == local.pubsub_agent &&
      google_pubsub_subscription_iam_member.agent_acknowledges[topic].subscription == google_pubsub_subscription.catalog[topic].name &&
      google_pubsub_subscription_iam_member.agent_acknowledges[topic].role == "roles/pubsub.subscriber"
    ])
    error_message = "Pub/Sub's own identity must publish to the dead letters and acknowledge on the subscription: else it never dead-letters."
  }

  # Windows.
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : subscription.message_retention_duration == "${7 * 24 * 3600}s"])
    error_message = "A subscription must be replayable for retention_days."
  }
  assert {
    condition     = contains(module.video.service.template[0].containers[0].args, "-outbox-retention=${7 * 24}h")
    error_message = "Published events must stay in the outbox for retention_days, as in the subscription."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : local.inbox_retention_days * 24 * 3600 > tonumber(trimsuffix(subscription.message_retention_duration, "s"))])
    error_message = "The inbox must remember for longer than a subscription can be replayed: a replay would bring what it has forgotten."
  }
  assert {
    condition     = alltrue([for topic in google_pubsub_topic.events : topic.message_retention_duration == null])
    error_message = "A topic that keeps messages widens the replay of its subscriptions: compare it with the inbox as well."
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.dead_letters : subscription.message_retention_duration == "${31 * 24 * 3600}s"])
    error_message = "Dead letters must stay as long as Pub/Sub can keep them: 31 days."
  }

  assert {
    condition = alltrue([
      for holder in concat(values(google_pubsub_topic.events), values(google_pubsub_topic.dead_letters), values(google_pubsub_subscription.catalog), values(google_pubsub_subscription.dead_letters)) :
      holder.deletion_policy == "PREVENT"
    ])
    error_message = "What holds messages must be protected from deletion."
  }
}

run "the_longest_retention" {
  command = plan

  variables {
    retention_days = 31
    exactly_once   = true
  }
  assert {
    condition     = alltrue([for subscription in google_pubsub_subscription.catalog : subscription.message_retention_duration == "2678400s" && subscription.enable_exactly_once_delivery])
    error_message = "31 days and exactly-once delivery must reach the subscriptions."
  }
  assert {
    condition     = contains(module.video.service.template[0].containers[0].args, "-outbox-retention=744h")
    error_message = "31 days must reach the outbox."
  }
}
