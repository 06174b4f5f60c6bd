# Services, workers, jobs: what runs, with what settings. Migrations and rebuilds: jobs.tftest.hcl.

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

run "services" {
  command = apply

  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.template[0].containers[0].resources[0].cpu_idle == false
    ])
    error_message = "cpu_idle must be false: relay and consumer work between requests."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.scaling[0].min_instance_count >= 1
    ])
    error_message = "min_instance_count must be at least 1: Cloud Run starts no instance for a backlog."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.scaling[0].max_instance_count == 2 && service.template[0].scaling[0].max_instance_count == 2 && service.template[0].containers[0].resources[0].startup_cpu_boost
    ])
    error_message = "Instances must be bounded, those of a revision without traffic too, and starts boosted."
  }
  assert {
    condition     = module.video.service.template[0].max_instance_request_concurrency == 80 && module.catalog.service.template[0].max_instance_request_concurrency == 1000
    error_message = "A write needs CPU and a connection, so few go to an instance of video; a reader who waits needs a place only."
  }
  assert {
    condition     = one(regex("^-max-waiting-reads=([0-9]+)$", module.catalog.service.template[0].containers[0].args[1])) * 2 == module.catalog.service.template[0].max_instance_request_concurrency
    error_message = "Readers who wait may take half of an instance's places: the next is refused while there is a place to say so, and those who need not wait are served."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.template[0].containers[0].ports[0].name == "h2c" && service.template[0].containers[0].ports[0].container_port == 8081
    ])
    error_message = "The port must be named h2c: gRPC needs HTTP/2 to the container."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.template[0].containers[0].startup_probe[0].http_get[0].path == "/readyz" && service.template[0].containers[0].liveness_probe[0].http_get[0].path == "/healthz"
    ])
    error_message = "A revision must be ready before it serves (/readyz) and be restarted when a loop stands still (/healthz)."
  }
  assert {
    condition = alltrue(flatten([
      for service in [module.video.service, module.catalog.service] : [
        for probe in concat(service.template[0].containers[0].startup_probe, service.template[0].containers[0].liveness_probe) :
        [for e in service.template[0].containers[0].env : e.value if e.name == "ADMIN_PORT"] == [tostring(probe.http_get[0].port)] &&
        probe.http_get[0].port != service.template[0].containers[0].ports[0].container_port
      ]
    ]))
    error_message = "Probes must ask the admin port, which requests from outside do not reach: health and metrics are for operators."
  }
  assert {
    condition = alltrue(flatten([
      for service in [module.video.service, module.catalog.service] :
      [for arg in service.template[0].containers[0].args : !strcontains(arg, "reflection")]
    ]))
    error_message = "gRPC reflection must stay off, as it is outside of a laptop."
  }
  assert {
    condition     = module.video.service.ingress == "INGRESS_TRAFFIC_ALL" && module.catalog.service.ingress == "INGRESS_TRAFFIC_ALL"
    error_message = "Without another ingress, IAM alone must decide which callers are let in."
  }
  assert {
    condition = alltrue(flatten([
      for service in [module.video.service, module.catalog.service] : [
        for probe in concat(service.template[0].containers[0].startup_probe, service.template[0].containers[0].liveness_probe) :
        probe.timeout_seconds < probe.period_seconds
      ]
    ]))
    error_message = "Cloud Run refuses a probe whose timeout is not below its period."
  }
  assert {
    condition = (
      can(regex("@sha256:0{64}$", module.video.service.template[0].containers[0].image)) &&
      can(regex("@sha256:1{64}$", module.catalog.service.template[0].containers[0].image)) &&
      can(regex("@sha256:0{64}$", module.video.migrate.template[0].template[0].containers[0].image)) &&
      can(regex("@sha256:0{64}$", module.video.jobs["video-outbox"].template[0].template[0].containers[0].image)) &&
      can(regex("@sha256:1{64}$", module.catalog.migrate.template[0].template[0].containers[0].image)) &&
      can(regex("@sha256:1{64}$", module.catalog.jobs["catalog-dlq"].template[0].template[0].containers[0].image)) &&
      can(regex("@sha256:1{64}$", module.catalog.jobs["catalog-rebuild"].template[0].template[0].containers[0].image))
    )
    error_message = "Everything must run the image that was given, by digest."
  }
  assert {
    condition = (
      one([for policy in google_artifact_registry_repository.images.cleanup_policies : policy.most_recent_versions[0].keep_count if policy.action == "KEEP"]) == 500 &&
      one([for policy in google_artifact_registry_repository.images.cleanup_policies : policy.condition[0].older_than if policy.action == "DELETE"]) == "7776000s"
    )
    error_message = "The image that runs must stay in the registry, however many were pushed since: a new revision reads it again."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.deletion_protection
    ])
    error_message = "Services must be protected from deletion."
  }
}

run "environment" {
  command = apply

  assert {
    condition = { for e in module.video.service.template[0].containers[0].env : e.name => e.value if length(e.value_source) == 0 } == { GOOGLE_CLOUD_PROJECT = "acme-test", PUBSUB_ENDPOINT = "europe-west1-pubsub.googleapis.com:443", LOG_LEVEL = "info", GOMEMLIMIT = "460MiB", ADMIN_PORT = "8080",
      AUTH_ISSUER = "https://issuer.example.com/auth/v1", AUTH_AUDIENCE = "authenticated", AUTH_SERVICE_AUDIENCE = "https://video-123456789012.europe-west1.run.app", AUTH_SERVICES = "${module.catalog.account.email},${module.catalog.migrate_account.email}"
    }
    error_message = "video's plain environment must be these: no secret, the regional endpoint, nine tenths of the memory, the users' issuer, and catalog's two accounts as the only services."
  }
  assert {
    condition     = { for e in module.video.service.template[0].containers[0].env : e.name => e.value_source[0].secret_key_ref[0].secret if length(e.value_source) > 0 } == { DATABASE_URL = "video-database-url" }
    error_message = "video's connection must come from its secret."
  }
  assert {
    condition = { for e in module.catalog.service.template[0].containers[0].env : e.name => e.value if length(e.value_source) == 0 } == { GOOGLE_CLOUD_PROJECT = "acme-test", PUBSUB_ENDPOINT = "europe-west1-pubsub.googleapis.com:443", VIDEO_SERVICE_ADDR = "video-123456789012.europe-west1.run.app:443", LOG_LEVEL = "info", GOMEMLIMIT = "460MiB", ADMIN_PORT = "8080",
      AUTH_ISSUER = "https://issuer.example.com/auth/v1", AUTH_AUDIENCE = "authenticated"
    }
    error_message = "catalog's plain environment must be these: no secret, the regional endpoint, video as host:443, nine tenths of the memory, and the users' issuer; no service calls it."
  }
  assert {
    condition     = module.video.service.custom_audiences == tolist(["https://video-123456789012.europe-west1.run.app"])
    error_message = "catalog's tokens are for the address that it calls: video must accept that audience."
  }
  assert {
    condition = alltrue(flatten([
      for container in [
        module.video.service.template[0].containers[0], module.catalog.service.template[0].containers[0],
        module.video.migrate.template[0].template[0].containers[0], module.catalog.migrate.template[0].template[0].containers[0],
        module.video.jobs["video-outbox"].template[0].template[0].containers[0], module.catalog.jobs["catalog-dlq"].template[0].template[0].containers[0],
        module.catalog.jobs["catalog-rebuild"].template[0].template[0].containers[0],
      ] : [for e in container.env : [for source in e.value_source : source.secret_key_ref[0].version == "1"]]
    ]))
    error_message = "Everything must read the first version of a secret, unless another is named."
  }
  assert {
    condition     = { for e in module.catalog.service.template[0].containers[0].env : e.name => e.value_source[0].secret_key_ref[0].secret if length(e.value_source) > 0 } == { DATABASE_URL = "catalog-database-url" }
    error_message = "catalog's connection must come from its secret."
  }
  assert {
    condition = (
      { for e in module.video.migrate.template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } == { DATABASE_URL = "video-admin-database-url", GOMEMLIMIT = "460MiB" } &&
      { for e in module.catalog.migrate.template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } == { DATABASE_URL = "catalog-admin-database-url", GOMEMLIMIT = "460MiB" }
    )
    error_message = "A migration must get the connection of its schema's owner, and nothing else but a bound of its memory."
  }
  assert {
    condition = alltrue([
      for job in [module.video.migrate, module.video.jobs["video-outbox"], module.catalog.migrate, module.catalog.jobs["catalog-dlq"], module.catalog.jobs["catalog-rebuild"]] :
      job.template[0].template[0].containers[0].resources[0].limits["memory"] == "512Mi" &&
      one([for e in job.template[0].template[0].containers[0].env : e.value if e.name == "GOMEMLIMIT"]) == "460MiB"
    ])
    error_message = "A job's garbage collector must know the job's memory."
  }
}

run "a_service_without_users" {
  command = apply

  variables {
    video   = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", everybody_may_write = true, workers = 1 }
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", ingress = "internal-and-cloud-load-balancing" }
  }
  assert {
    condition = alltrue([
      for container in [module.video.service.template[0].containers[0], module.video.workers[0].template[0].containers[0]] :
      { for e in container.env : e.name => e.value if strcontains(e.name, "AUTH") || strcontains(e.name, "EVERYBODY") } == { EVERYBODY_MAY_WRITE = "true" }
    ])
    error_message = "A service with everybody_may_write must have no issuer: it refuses to start with both."
  }
  assert {
    condition     = { for e in module.catalog.service.template[0].containers[0].env : e.name => e.value if strcontains(e.name, "AUTH") || strcontains(e.name, "EVERYBODY") } == { AUTH_ISSUER = "https://issuer.example.com/auth/v1", AUTH_AUDIENCE = "authenticated" }
    error_message = "One service without users must not open the other."
  }
  assert {
    condition     = module.video.service.ingress == "INGRESS_TRAFFIC_ALL" && module.catalog.service.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"
    error_message = "An ingress must be that of its service."
  }
}

run "tenants" {
  command = plan

  variables { auth_tenant_claim = "app_metadata.tenant_id" }
  assert {
    condition = alltrue([
      for container in [module.video.service.template[0].containers[0], module.catalog.service.template[0].containers[0]] :
      anytrue([for e in container.env : e.name == "AUTH_TENANT_CLAIM" && e.value == "app_metadata.tenant_id"])
    ])
    error_message = "Both services must take the tenant from the same claim."
  }
}

run "a_pair_without_users" {
  command = plan

  variables {
    auth_issuer   = null
    auth_audience = null
    video         = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", everybody_may_write = true, ingress = "internal" }
    catalog       = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", everybody_may_write = true }
    network       = { network = "main", subnetwork = "run" }
  }
  assert {
    condition     = module.video.service.ingress == "INGRESS_TRAFFIC_INTERNAL_ONLY" && module.video.service.template[0].vpc_access[0].network_interfaces[0].network == "main"
    error_message = "A pair inside a network must be possible without an issuer."
  }
}

run "nothing_extra" {
  command = plan

  assert {
    condition     = length(module.video.workers) + length(module.catalog.workers) + length(local.drain) + length(google_cloud_scheduler_job.video_drain) + length(google_monitoring_alert_policy.drain) + length(google_monitoring_alert_policy.drain_refused) + length(google_monitoring_alert_policy.disk) + length(google_billing_budget.project) + length(google_sql_database_instance.main) + length(google_iam_workload_identity_pool.ci) == 0
    error_message = "Workers, schedule, database, budget and CI are for those who ask for them."
  }
}

run "everything" {
  command = apply

  variables {
    video                = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", workers = 2, min_instances = 0, drain_schedule = "*/5 * * * *", memory = "2Gi", flags = { tenant-rate = "1000" } }
    catalog              = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", workers = 3, concurrency = 101, flags = { user-rate = "20", cors-origin = "https://app.example" } }
    transaction_pooler   = true
    binary_authorization = true
    cloud_sql            = { disk_gb = 20, max_connections = 200 }
    network              = { network = "main", subnetwork = "run" }
    secret_versions      = { video-database-url = "2", catalog-admin-database-url = "3" }
    labels               = { team = "video" }
  }
  assert {
    condition     = module.video.workers[0].scaling[0].manual_instance_count == 2 && module.catalog.workers[0].scaling[0].manual_instance_count == 3
    error_message = "Workers must be as many as asked for."
  }
  assert {
    condition = (
      one([for e in module.video.service.template[0].containers[0].env : e.value if e.name == "GOMEMLIMIT"]) == "1843MiB" &&
      one([for e in module.video.jobs["video-outbox"].template[0].template[0].containers[0].env : e.value if e.name == "GOMEMLIMIT"]) == "460MiB"
    )
    error_message = "The garbage collector must know nine tenths of the instance's memory: 2 GiB of a service, 512 MiB of a job."
  }
  assert {
    condition     = module.video.service.template[0].containers[0].args == tolist(["serve", "-outbox-retention=168h", "-tenant-rate=1000"])
    error_message = "video's flags must follow those of the module."
  }
  assert {
    condition     = module.catalog.service.template[0].containers[0].args == tolist(["serve", "-max-waiting-reads=50", "-cors-origin=https://app.example", "-user-rate=20"]) && module.catalog.workers[0].template[0].containers[0].args == module.catalog.service.template[0].containers[0].args
    error_message = "The places for readers who wait must follow concurrency, and flags must reach the service and its workers."
  }
  assert {
    condition = alltrue([
      for runs in [
        module.video.service, module.catalog.service, module.video.workers[0], module.catalog.workers[0],
        module.video.migrate, module.video.jobs["video-outbox"], module.catalog.migrate, module.catalog.jobs["catalog-dlq"],
        module.catalog.jobs["catalog-rebuild"], module.video.jobs["video-drain"],
      ] : runs.binary_authorization[0].use_default
    ])
    error_message = "With binary_authorization all that runs an image must ask the policy."
  }
  assert {
    condition = alltrue([
      for pool in [module.video.workers[0], module.catalog.workers[0]] :
      pool.template[0].containers[0].startup_probe[0].http_get[0].path == "/readyz" &&
      pool.template[0].containers[0].startup_probe[0].http_get[0].port == module.video.service.template[0].containers[0].startup_probe[0].http_get[0].port &&
      pool.template[0].containers[0].liveness_probe[0].http_get[0].port == module.video.service.template[0].containers[0].liveness_probe[0].http_get[0].port &&
      pool.template[0].containers[0].startup_probe[0].failure_threshold == module.video.service.template[0].containers[0].startup_probe[0].failure_threshold
    ])
    error_message = "Workers must be asked where a service is, and have as much time to start."
  }
  assert {
    condition = (
      { for e in module.video.workers[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } ==
      { for e in module.video.service.template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) if e.name != "ADMIN_PORT" } &&
      { for e in module.catalog.workers[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } ==
      { for e in module.catalog.service.template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) if e.name != "ADMIN_PORT" }
    )
    error_message = "Workers must run with their service's environment, and have all of it on one port: nobody reaches it from outside."
  }
  assert {
    condition = alltrue([
      for account in [
        module.catalog.service.template[0].service_account, module.catalog.workers[0].template[0].service_account,
        module.catalog.jobs["catalog-dlq"].template[0].template[0].service_account, module.catalog.jobs["catalog-rebuild"].template[0].template[0].service_account,
      ] : contains(split(",", one([for e in module.video.service.template[0].containers[0].env : e.value if e.name == "AUTH_SERVICES"])), account)
    ])
    error_message = "All of catalog that calls video must be a service that video knows: a repair, a backfill, a rebuild and a worker ask it too."
  }
  assert {
    condition = alltrue(flatten([
      for job in [module.video.jobs["video-outbox"], module.video.jobs["video-drain"], module.catalog.jobs["catalog-dlq"], module.catalog.jobs["catalog-rebuild"]] : [
        for e in job.template[0].template[0].containers[0].env : !startswith(e.name, "AUTH_") && e.name != "ADMIN_PORT"
      ]
    ]))
    error_message = "The operators' jobs and the drain have no callers, so they need no issuer and no port."
  }
  assert {
    condition = (
      module.video.workers[0].template[0].annotations == module.video.service.template[0].annotations &&
      module.catalog.workers[0].template[0].annotations == module.catalog.service.template[0].annotations
    )
    error_message = "Workers must start again when their service does."
  }
  assert {
    condition     = module.video.jobs["video-drain"].template[0].template[0].containers[0].args == tolist(["outbox", "drain"]) && google_cloud_scheduler_job.video_drain[0].schedule == "*/5 * * * *"
    error_message = "The schedule must drain the outbox."
  }
  assert {
    condition     = endswith(google_cloud_scheduler_job.video_drain[0].http_target[0].uri, "${module.video.jobs["video-drain"].id}:run") && google_cloud_run_v2_job_iam_member.video_drain[0].name == module.video.jobs["video-drain"].name
    error_message = "The schedule must run the drain's job, and be allowed to."
  }
  assert {
    condition = (
      { for e in module.video.jobs["video-drain"].template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } ==
      { for e in module.video.jobs["video-outbox"].template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } &&
      can(regex("@sha256:0{64}$", module.video.jobs["video-drain"].template[0].template[0].containers[0].image)) &&
      module.video.jobs["video-drain"].template[0].template[0].service_account == module.video.jobs["video-outbox"].template[0].template[0].service_account
    )
    error_message = "The drain must run as the operators' commands do: video's image, account and environment."
  }
  # outbox drain gives up after five minutes. outbox purge and erase of many rows take hours.
  assert {
    condition = (
      module.video.jobs["video-drain"].template[0].template[0].timeout == "600s" && module.video.jobs["video-outbox"].template[0].template[0].timeout == "86400s" &&
      module.catalog.jobs["catalog-dlq"].template[0].template[0].timeout == "86400s" && module.video.jobs["video-outbox"].template[0].template[0].containers[0].args == tolist(["outbox", "status"])
    )
    error_message = "A drain must end before the next is long due; an operator's command must not be ended in the middle, and without arguments the job must only show a state."
  }
  assert {
    condition = alltrue([
      for service in [module.video.service, module.catalog.service] :
      service.template[0].volumes[0].cloud_sql_instance[0].instances == toset(["acme-test:europe-west1:lockstep"]) &&
      service.template[0].containers[0].volume_mounts[0].mount_path == "/cloudsql" &&
      service.template[0].vpc_access[0].network_interfaces[0].subnetwork == "run" &&
      contains([for e in service.template[0].containers[0].env : e.name], "LISTEN_DATABASE_URL")
    ])
    error_message = "Cloud SQL's sockets, the network and LISTEN_DATABASE_URL must reach both services."
  }
  assert {
    condition = (
      one([for e in module.video.service.template[0].containers[0].env : e if e.name == "DATABASE_URL"]).value_source[0].secret_key_ref[0].version == "2" &&
      one([for e in module.catalog.service.template[0].containers[0].env : e if e.name == "DATABASE_URL"]).value_source[0].secret_key_ref[0].version == "1" &&
      one([for e in module.catalog.migrate.template[0].template[0].containers[0].env : e if e.name == "DATABASE_URL"]).value_source[0].secret_key_ref[0].version == "3"
    )
    error_message = "A secret's version must be the one asked for, else the first: never a later one that was only added."
  }
  assert {
    condition = google_sql_database_instance.main[0].settings[0].user_labels == tomap({ team = "video" }) && alltrue([
      for runs in [module.video.service, module.catalog.service, module.video.workers[0], module.catalog.workers[0]] :
      runs.template[0].labels == tomap({ team = "video" })
    ])
    error_message = "The database and the revisions must have the labels, which the provider does not pass on to them by itself: they are most of the costs."
  }
  assert {
    condition     = contains([for flag in google_sql_database_instance.main[0].settings[0].database_flags : flag if flag.name == "max_connections"], { name = "max_connections", value = "200" })
    error_message = "The database must take the connections that the instances were counted against."
  }
  assert {
    condition = (
      google_sql_database_instance.main[0].settings[0].connector_enforcement == "REQUIRED" &&
      google_sql_database_instance.main[0].settings[0].backup_configuration[0].point_in_time_recovery_enabled &&
      google_sql_database_instance.main[0].deletion_protection
    )
    error_message = "The database must be reached by connectors only, be restorable to a point in time, and be protected."
  }
  assert {
    condition = (
      google_sql_database_instance.main[0].settings[0].disk_autoresize_limit == 200 &&
      google_monitoring_alert_policy.disk[0].conditions[0].condition_threshold[0].threshold_value == 160 * pow(1024, 3) &&
      strcontains(google_monitoring_alert_policy.disk[0].conditions[0].condition_threshold[0].filter, "\"acme-test:lockstep\"")
    )
    error_message = "A disk must grow up to a limit, with an alert before the limit."
  }
  assert {
    condition     = google_sql_database_instance.main[0].settings[0].backup_configuration[0].transaction_log_retention_days <= var.retention_days
    error_message = "By default a replay must cover each moment that catalog's database can be restored to."
  }
  assert {
    condition     = google_sql_database_instance.main[0].settings[0].maintenance_window[0].day == 7 && google_sql_database_instance.main[0].settings[0].maintenance_window[0].hour == 3 && google_sql_database_instance.main[0].settings[0].backup_configuration[0].location == "europe-west1"
    error_message = "Google must restart the database at a known hour, and keep its backups in the region."
  }
  assert {
    condition     = google_sql_database.main[0].deletion_policy == "ABANDON"
    error_message = "The database must go with its instance: Cloud SQL refuses to delete it alone while a session is left."
  }
}
