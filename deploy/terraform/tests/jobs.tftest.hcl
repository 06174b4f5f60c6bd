# Migrations, which run at each release, and rebuilds, which a person begins.

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

run "migrations" {
  command = apply

  assert {
    condition     = module.video.migrate.run_execution_token == substr(module.video.migration.id, 0, 8) && module.catalog.migrate.run_execution_token == substr(module.catalog.migration.id, 0, 8)
    error_message = "A migration must run, under a new name, whenever its job changes; and be waited for."
  }
  assert {
    condition     = contains(module.video.migration.triggers_replace, var.video.image) && contains(module.catalog.migration.triggers_replace, var.catalog.image)
    error_message = "A new image must run the migrations."
  }
  assert {
    condition = alltrue([
      for migration in [module.video.migration, module.catalog.migration] :
      contains([for trigger in migration.triggers_replace : jsonencode(trigger)], jsonencode(var.labels)) &&
      contains([for trigger in migration.triggers_replace : jsonencode(trigger)], jsonencode(var.binary_authorization))
    ])
    error_message = "Whatever changes the job must change its token: Cloud Run may refuse an update with the token of an earlier one."
  }
  assert {
    condition     = module.video.migrate.template[0].template[0].containers[0].args == tolist(["migrate"]) && module.catalog.migrate.template[0].template[0].containers[0].args == tolist(["migrate"])
    error_message = "The migration jobs must run migrate."
  }
  assert {
    condition = (
      module.video.service.template[0].annotations["migration"] == module.video.migration.id &&
      module.catalog.service.template[0].annotations["migration"] == module.catalog.migration.id
    )
    error_message = "Migrations that run again must bring a new revision: Cloud Run does not start one again that has failed."
  }
  assert {
    condition     = module.video.migrate.template[0].template[0].max_retries == 0 && module.catalog.migrate.template[0].template[0].max_retries == 0
    error_message = "A migration that has failed must be looked at, not run again."
  }
  # 960 s, and the start: the provider would give up after 20 minutes.
  assert {
    condition = alltrue([
      for job in [module.video.migrate, module.catalog.migrate] :
      alltrue([
        for patience in [job.timeouts.create, job.timeouts.update] :
        tonumber(trimsuffix(patience, "m")) * 60 >= (job.template[0].template[0].max_retries + 1) * tonumber(trimsuffix(job.template[0].template[0].timeout, "s")) + 300
      ])
    ])
    error_message = "Terraform must wait for as long as a migration may take."
  }
}

# The account's grants, and the accounts that video knows, are in permissions.tftest.hcl and
# in the assertions of video's environment.
run "rebuild" {
  command = apply

  assert {
    condition = { for e in module.catalog.jobs["catalog-rebuild"].template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } == {
      DATABASE_URL = "catalog-admin-database-url", VIDEO_SERVICE_ADDR = "video-123456789012.europe-west1.run.app:443", GOMEMLIMIT = "460MiB", LOG_LEVEL = "info"
    }
    error_message = "A rebuild must get the connection of its schema's owner, and video's address."
  }
  assert {
    condition = (
      module.catalog.jobs["catalog-rebuild"].template[0].template[0].service_account == module.catalog.migrate_account.email &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.name == module.video.service.name &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.role == "roles/run.invoker" &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.member == "serviceAccount:${module.catalog.jobs["catalog-rebuild"].template[0].template[0].service_account}"
    )
    error_message = "A rebuild must run as the account that reads the owner's connection, and that account must be allowed to call video."
  }
  assert {
    condition     = module.catalog.jobs["catalog-rebuild"].template[0].template[0].containers[0].args == tolist(["rebuild", "status"]) && module.catalog.jobs["catalog-rebuild"].run_execution_token == null && module.catalog.jobs["catalog-rebuild"].template[0].template[0].max_retries == 0
    error_message = "A rebuild must be begun by a person: the job without arguments only shows its state."
  }
  assert {
    condition     = tonumber(trimsuffix(module.catalog.jobs["catalog-rebuild"].template[0].template[0].timeout, "s")) >= 43200
    error_message = "A rebuild of many rows takes hours: the job must not be ended before."
  }
}
