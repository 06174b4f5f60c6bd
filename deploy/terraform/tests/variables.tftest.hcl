# Wrong values are refused before anything is asked of Google.

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

run "images_by_tag" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video:latest" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog:v1" }
  }
  expect_failures = [var.video, var.catalog]
}

run "images_by_a_digest_that_is_none" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:latest" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111" }
  }
  expect_failures = [var.video, var.catalog]
}

run "a_canary_that_is_rarer_than_its_alerts_need" {
  command = plan
  variables {
    video                 = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", canary_seconds = 61 }
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  }
  expect_failures = [var.video]
}

run "a_canary_without_a_collector" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", canary_seconds = 15 }
  }
  expect_failures = [var.video]
}

run "images_of_elsewhere" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/somebody/else/video@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:1111111111111111111111111111111111111111111111111111111111111111" }
  }
  expect_failures = [var.video, var.catalog]
}

run "invokers_that_are_everybody" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", invokers = ["allUsers"] }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", invokers = ["allAuthenticatedUsers"] }
  }
  expect_failures = [var.video, var.catalog]
}

# Every caller of the internet, and none of them has to sign in.
run "the_world_writes" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", public = true, everybody_may_write = true }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", public = true, everybody_may_write = true }
  }
  expect_failures = [var.video, var.catalog]
}

run "ingress_that_there_is_not" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", ingress = "INGRESS_TRAFFIC_ALL" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", ingress = "none" }
    network = { network = "main", subnetwork = "run" }
  }
  expect_failures = [var.video, var.catalog]
}

run "a_video_that_catalog_does_not_reach" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", ingress = "internal" }
  }
  expect_failures = [var.video]
}

run "a_tenant_without_an_issuer" {
  command = plan
  variables {
    auth_issuer       = null
    auth_audience     = null
    auth_tenant_claim = "tenant_id"
    video             = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", everybody_may_write = true }
    catalog           = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", everybody_may_write = true }
  }
  expect_failures = [var.auth_tenant_claim]
}

run "a_tenant_of_a_nameless_claim" {
  command = plan
  variables { auth_tenant_claim = "app_metadata..tenant_id" }
  expect_failures = [var.auth_tenant_claim]
}

run "no_issuer" {
  command = plan
  variables {
    auth_issuer   = null
    auth_audience = null
  }
  expect_failures = [var.auth_issuer]
}

run "no_issuer_for_one_of_both" {
  command = plan
  variables {
    auth_issuer   = null
    auth_audience = null
    video         = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", everybody_may_write = true }
  }
  expect_failures = [var.auth_issuer]
}

run "an_issuer_without_tls" {
  command = plan
  variables {
    auth_issuer = "http://issuer.example.com"
  }
  expect_failures = [var.auth_issuer]
}

run "an_issuer_with_more_than_a_path" {
  command = plan
  variables {
    auth_issuer = "https://me@issuer.example.com/auth?tenant=1#v1"
  }
  expect_failures = [var.auth_issuer]
}

run "an_issuer_with_a_double_slash" {
  command = plan
  variables {
    auth_issuer = "https://issuer.example.com//"
  }
  expect_failures = [var.auth_issuer]
}

# Auth0's issuers end with one, and tokens name them so.
run "an_issuer_with_a_slash_at_its_end" {
  command = plan
  variables {
    auth_issuer = "https://acme.eu.auth0.com/"
  }
  assert {
    condition     = one([for e in module.video.service.template[0].containers[0].env : e.value if e.name == "AUTH_ISSUER"]) == "https://acme.eu.auth0.com/"
    error_message = "An issuer must reach the services as it is: tokens are compared with it letter by letter."
  }
}

run "an_audience_that_is_none" {
  command = plan
  variables {
    auth_audience = ""
  }
  expect_failures = [var.auth_audience]
}

run "an_issuer_without_an_audience" {
  command = plan
  variables {
    auth_audience = null
  }
  expect_failures = [var.auth_audience]
}

run "a_repository_without_its_number" {
  command = plan
  variables {
    github_repository = "acme/pair"
  }
  expect_failures = [var.github_repository_id]
}

run "a_number_that_is_none" {
  command = plan
  variables {
    github_repository    = "acme/pair"
    github_repository_id = "acme/pair"
  }
  expect_failures = [var.github_repository_id]
}

# GitHub's token for the environment production would have a subject of 128 characters.
run "a_repository_whose_name_is_too_long" {
  command = plan
  variables {
    github_repository    = "acme/${join("", [for n in range(73) : "p"])}"
    github_repository_id = "123456789"
  }
  expect_failures = [var.github_repository]
}

run "services_that_sleep" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", min_instances = 0 }
  }
  expect_failures = [var.video, var.catalog]
}

run "half_a_cpu" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", cpu = "0.5" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", memory = "256Mi" }
  }
  expect_failures = [var.video, var.catalog]
}

# Cloud Run has these pairs only, and says so when half of the world is made.
run "memory_that_does_not_go_with_the_cpu" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", cpu = "4" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", memory = "5Gi" }
  }
  expect_failures = [var.video, var.catalog]
}

run "memory_of_another_form" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", memory = "1024" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", memory = "1G" }
  }
  expect_failures = [var.video, var.catalog]
}

run "memory_that_does" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", cpu = "8", memory = "32Gi" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", cpu = "2", memory = "512Mi" }
  }
  assert {
    condition     = module.video.service.template[0].containers[0].resources[0].limits == tomap({ cpu = "8", memory = "32Gi" })
    error_message = "What goes together must reach the service."
  }
}

run "more_at_least_than_at_most" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 5 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", max_instances = 0 }
  }
  expect_failures = [var.video, var.catalog]
}

run "counts_and_schedules" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "hourly" }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", concurrency = 1001 }
  }
  expect_failures = [var.video, var.catalog]
}

# The alert on a drain that is silent waits for two hours.
run "a_schedule_of_once_a_day" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "0 3 * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_every_other_hour" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "0 */2 * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_a_day_of_the_month" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/5 * 1 * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_a_month" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/5 * * 6 *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_working_days" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/5 * * * 1-5" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_a_minute_that_is_none" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "60 * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_steps_that_are_none" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/0 * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_a_list_that_does_not_end" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "0,30, * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_with_seconds" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "0 */5 * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_once_an_hour" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "7 * * * *" }
  }
  assert {
    condition     = google_cloud_scheduler_job.video_drain[0].schedule == "7 * * * *"
    error_message = "A schedule that is hourly or more often must be possible."
  }
}

run "a_schedule_of_a_list" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "0,15,30,45 * * * *" }
  }
  assert {
    condition     = google_cloud_scheduler_job.video_drain[0].schedule == "0,15,30,45 * * * *"
    error_message = "A schedule that is hourly or more often must be possible."
  }
}

run "a_schedule_of_every_minute" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "* * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_every_four_minutes" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/4 * * * *" }
  }
  expect_failures = [var.video]
}

run "a_schedule_of_every_five_minutes" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/5 * * * *" }
  }
  assert {
    condition     = google_cloud_scheduler_job.video_drain[0].schedule == "*/5 * * * *"
    error_message = "A schedule of as many minutes as a drain may take must be possible."
  }
}

run "a_schedule_of_steps" {
  command = plan
  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", drain_schedule = "*/59 * * * *" }
  }
  assert {
    condition     = google_cloud_scheduler_job.video_drain[0].schedule == "*/59 * * * *"
    error_message = "A schedule that is hourly or more often must be possible."
  }
}

# Cloud Run and Cloud SQL take whole numbers, and say so when half of the world is made.
run "half_an_instance" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 1.5 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", min_instances = 1.5 }
  }
  expect_failures = [var.video, var.catalog]
}

run "half_an_instance_at_most" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", max_instances = 3.5 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", max_instances = 3.5 }
  }
  expect_failures = [var.video, var.catalog]
}

run "half_a_request" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", concurrency = 80.5 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", concurrency = 80.5 }
  }
  expect_failures = [var.video, var.catalog]
}

run "half_a_worker" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", workers = 0.5 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 0.5 }
  }
  expect_failures = [var.video, var.catalog]
}

run "workers" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", workers = -1 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 101 }
  }
  expect_failures = [var.video, var.catalog]
}

run "variables_of_the_module" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", extra_environment = { DATABASE_URL = "postgres://db" } }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", extra_environment = { ADMIN_PORT = "1" } }
  }
  expect_failures = [var.video, var.catalog]
}

run "flags_of_the_module" {
  command = plan
  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", flags = { outbox-retention = "1h" } }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", flags = { "-user-rate" = "1" } }
  }
  expect_failures = [var.video, var.catalog]
}

run "monitoring" {
  command = plan
  variables {
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector:latest"
    ticket_channels       = ["someone@example.com"]
    runbook_url           = "http://example.com/runbook.md"
  }
  expect_failures = [var.metrics_sidecar_image, var.ticket_channels, var.runbook_url]
}

# Postgres refuses the instance that comes last, and says so when the others are busy.
run "instances_that_the_database_does_not_take" {
  command = plan
  variables {
    video     = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", max_instances = 3 }
    cloud_sql = {}
  }
  expect_failures = [var.cloud_sql]
}

run "workers_that_the_database_does_not_take" {
  command = plan
  variables {
    catalog   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 1 }
    cloud_sql = {}
  }
  expect_failures = [var.cloud_sql]
}

run "a_database_that_takes_them" {
  command = plan
  variables {
    video     = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", max_instances = 6 }
    catalog   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 3 }
    cloud_sql = { max_connections = 200 }
  }
  assert {
    condition     = local.connections == 200
    error_message = "Ten of 6 + 2 + 2 + 2 + 6 instances, and 20 of others."
  }
}

run "half_a_connection" {
  command = plan
  variables {
    cloud_sql = { max_connections = 100.5 }
  }
  expect_failures = [var.cloud_sql]
}

run "half_a_gigabyte" {
  command = plan
  variables {
    cloud_sql = { disk_gb = 10.5, disk_limit_gb = 20 }
  }
  expect_failures = [var.cloud_sql]
}

# By itself: its connections are counted with the services' instances, which name the
# project's registry, so a missing name is reported first.
run "databases_that_there_are_not" {
  command = plan
  variables {
    cloud_sql = { tier = "small", disk_gb = 1, disk_limit_gb = 0, maintenance = { day = 0, hour = 24 } }
  }
  expect_failures = [var.cloud_sql]
}

# Postgres of Cloud SQL has its own names of machine types: Google refuses the others when half of
# the world is made.
run "a_machine_of_mysql" {
  command = plan
  variables {
    cloud_sql = { tier = "db-n1-standard-1" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_of_another_edition" {
  command = plan
  variables {
    cloud_sql = { tier = "db-perf-optimized-N-2" }
  }
  expect_failures = [var.cloud_sql]
}

# Google gives 25 and 50 connections to these two: not enough for the instances of the defaults.
run "a_machine_with_a_shared_cpu" {
  command = plan
  variables {
    cloud_sql = { tier = "db-g1-small" }
  }
  expect_failures = [var.cloud_sql]
}

# Google refuses these, too, and says so after a part of the project is made.
run "a_machine_with_three_cpus" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-3-7680" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_with_little_memory" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-8-7168" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_with_much_memory" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-1-6912" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_with_an_odd_memory" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-2-7700" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_with_less_than_the_least" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-1-3584" }
  }
  expect_failures = [var.cloud_sql]
}

run "a_machine_of_its_own" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-2-7680" }
  }
  assert {
    condition     = google_sql_database_instance.main[0].settings[0].tier == "db-custom-2-7680"
    error_message = "A larger machine must be possible."
  }
}

run "a_machine_of_the_least_memory_for_a_cpu" {
  command = plan
  variables {
    cloud_sql = { tier = "db-custom-10-9216" }
  }
  assert {
    condition     = google_sql_database_instance.main[0].settings[0].tier == "db-custom-10-9216"
    error_message = "0.9 GiB for each CPU must be possible."
  }
}

run "a_budget_that_tells_too_many" {
  command = plan
  variables {
    budget = { billing_account = "000000-AAAAAA-BBBBBB", amount = 200, email_channels = [for n in range(6) : "projects/acme-test/notificationChannels/${n}"] }
  }
  expect_failures = [var.budget]
}

run "a_budget_that_tells_an_address" {
  command = plan
  variables {
    budget = { billing_account = "000000-AAAAAA-BBBBBB", amount = 200, email_channels = ["me@example.com"] }
  }
  expect_failures = [var.budget]
}

# The relay's line about events that do not leave is a warning.
run "a_log_without_the_lines_of_alerts" {
  command = plan
  variables {
    log_level = "error"
  }
  expect_failures = [var.log_level]
}

run "a_log_of_errors_with_a_collector" {
  command = plan
  variables {
    log_level             = "error"
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  }
  assert {
    condition     = length(google_monitoring_alert_policy.logs) == 0
    error_message = "With the collector no alert needs a line."
  }
}

run "the_rest" {
  command = plan
  variables {
    project_id            = "Acme"
    project_number        = "acme-test"
    region                = "eu"
    log_level             = "loud"
    labels                = { Team = "video" }
    budget                = { billing_account = "acme", amount = 200 }
    retention_days        = 32
    secret_versions       = { video-password = "1" }
    network               = { network = "main", subnetwork = "" }
    github_repository     = "pair"
    notification_channels = ["me@example.com"]
  }
  expect_failures = [
    var.project_id, var.project_number, var.region, var.log_level, var.labels, var.budget, var.retention_days,
    var.secret_versions, var.network, var.github_repository, var.notification_channels,
  ]
}
