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
    condition     = google_cloud_run_v2_job.video_migrate.run_execution_token == substr(terraform_data.video_migration.id, 0, 8) && google_cloud_run_v2_job.catalog_migrate.run_execution_token == substr(terraform_data.catalog_migration.id, 0, 8)
    error_message = "A migration must run, under a new name, whenever its job changes; and be waited for."
  }
  assert {
    condition     = contains(terraform_data.video_migration.triggers_replace, var.video.image) && contains(terraform_data.catalog_migration.triggers_replace, var.catalog.image)
    error_message = "A new image must run the migrations."
  }
  assert {
    condition     = google_cloud_run_v2_job.video_migrate.template[0].template[0].containers[0].args == tolist(["migrate"]) && google_cloud_run_v2_job.catalog_migrate.template[0].template[0].containers[0].args == tolist(["migrate"])
    error_message = "The migration jobs must run migrate."
  }
  assert {
    condition = (
      google_cloud_run_v2_service.video.template[0].annotations["migration"] == terraform_data.video_migration.id &&
      google_cloud_run_v2_service.catalog.template[0].annotations["migration"] == terraform_data.catalog_migration.id
    )
    error_message = "Migrations that run again must bring a new revision: Cloud Run does not start one again that has failed."
  }
  assert {
    condition     = google_cloud_run_v2_job.video_migrate.template[0].template[0].max_retries == 0 && google_cloud_run_v2_job.catalog_migrate.template[0].template[0].max_retries == 0
    error_message = "A migration that has failed must be looked at, not run again."
  }
  # 960 s, and the start: the provider would give up after 20 minutes.
  assert {
    condition = alltrue([
      for job in [google_cloud_run_v2_job.video_migrate, google_cloud_run_v2_job.catalog_migrate] :
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
    condition = { for e in google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].containers[0].env : e.name => try(e.value_source[0].secret_key_ref[0].secret, e.value) } == {
      DATABASE_URL = "catalog-admin-database-url", VIDEO_SERVICE_ADDR = "video-123456789012.europe-west1.run.app:443", GOMEMLIMIT = "460MiB", LOG_LEVEL = "info"
    }
    error_message = "A rebuild must get the connection of its schema's owner, and video's address."
  }
  assert {
    condition = (
      google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].service_account == google_service_account.catalog_migrate.email &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.name == google_cloud_run_v2_service.video.name &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.role == "roles/run.invoker" &&
      google_cloud_run_v2_service_iam_member.rebuild_calls_video.member == "serviceAccount:${google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].service_account}"
    )
    error_message = "A rebuild must run as the account that reads the owner's connection, and that account must be allowed to call video."
  }
  assert {
    condition     = google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].containers[0].args == tolist(["rebuild", "status"]) && google_cloud_run_v2_job.catalog_rebuild.run_execution_token == null && google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].max_retries == 0
    error_message = "A rebuild must be begun by a person: the job without arguments only shows its state."
  }
  assert {
    condition     = tonumber(trimsuffix(google_cloud_run_v2_job.catalog_rebuild.template[0].template[0].timeout, "s")) >= 43200
    error_message = "A rebuild of many rows takes hours: the job must not be ended before."
  }
}
