# A project that has everything. `make tf-check` compares all that is granted in it
# with grants.txt next to this file.

mock_provider "google" {
  source = "./tests/mocks"

  override_resource {
    target = module.video.google_service_account.service
    values = { email = "video-service@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/video-service@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = module.video.google_service_account.migrate
    values = { email = "video-migrate@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/video-migrate@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = google_service_account.video_drain
    values = { email = "video-drain@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/video-drain@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = module.catalog.google_service_account.service
    values = { email = "catalog-service@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/catalog-service@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = module.catalog.google_service_account.migrate
    values = { email = "catalog-migrate@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/catalog-migrate@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = google_service_account.ci_plan
    values = { email = "ci-plan@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/ci-plan@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = google_service_account.ci_push
    values = { email = "ci-push@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/ci-push@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = google_project_iam_custom_role.ci_schemas
    values = { name = "projects/acme-test/roles/lockstepSchemas" }
  }
  override_resource {
    target = google_project_iam_custom_role.ci_reads
    values = { name = "projects/acme-test/roles/lockstepReads" }
  }
  override_resource {
    target = google_service_account.ci_release
    values = { email = "ci-release@acme-test.iam.gserviceaccount.com", name = "projects/acme-test/serviceAccounts/ci-release@acme-test.iam.gserviceaccount.com" }
  }
  override_resource {
    target = google_iam_workload_identity_pool.ci
    values = { name = "projects/123456789012/locations/global/workloadIdentityPools/lockstep-ci" }
  }
}

variables {
  project_id     = "acme-test"
  project_number = "123456789012"
  auth_issuer    = "https://issuer.example.com/auth/v1"
  auth_audience  = "authenticated"
  video          = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
  catalog        = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111" }
}

run "grants" {
  command = apply

  variables {
    video                 = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0, drain_schedule = "*/5 * * * *", invokers = ["user:me@example.com"] }
    catalog               = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", invokers = ["user:me@example.com", "group:readers@example.com"] }
    cloud_sql             = {}
    github_repository     = "acme/pair"
    github_repository_id  = "123456789"
    metrics_sidecar_image = "us-docker.pkg.dev/google/collector@sha256:2222222222222222222222222222222222222222222222222222222222222222"
  }
}
