# GitHub's workflows without a key: they show a token of GitHub's, and get one of a
# service account's for an hour. Two accounts, since any branch may plan and only
# the environment "production", which can ask for a reviewer, may release.

locals {
  ci = var.github_repository == null ? 0 : 1

  ci_pool = one(google_iam_workload_identity_pool.ci[*].name)

  # A release changes images: services, workers and jobs, which run as these.
  ci_runs_as = var.github_repository == null ? {} : {
    video           = google_service_account.video.name
    video-migrate   = google_service_account.video_migrate.name
    catalog         = google_service_account.catalog.name
    catalog-migrate = google_service_account.catalog_migrate.name
  }
}

resource "google_iam_workload_identity_pool" "ci" {
  count = local.ci

  workload_identity_pool_id = "lockstep-ci"
  display_name              = "CI"
}

resource "google_iam_workload_identity_pool_provider" "github" {
  count = local.ci

  workload_identity_pool_id          = google_iam_workload_identity_pool.ci[0].workload_identity_pool_id
  workload_identity_pool_provider_id = "github"
  display_name                       = "GitHub"

  # All of GitHub shares the issuer: without this, everybody's workflows get in. A
  # name can change hands, a number cannot.
  attribute_condition = join(" && ", compact([
    "assertion.repository == '${var.github_repository}'",
    var.github_repository_id == null ? "" : "assertion.repository_id == '${var.github_repository_id}'",
  ]))

  # A token has a claim for the environment only when its job has one; its subject
  # ends with it either way. What stands before depends on the repository's age.
  attribute_mapping = {
    "google.subject"        = "assertion.sub"
    "attribute.repository"  = "assertion.repository"
    "attribute.environment" = "assertion.sub.endsWith(':environment:production') ? 'production' : 'none'"
  }

  oidc {
    issuer_uri = "https://token.actions.githubusercontent.com"
  }
}

# Any workflow of the repository: push images, and read what a plan compares.

resource "google_service_account" "ci_plan" {
  count = local.ci

  account_id   = "ci-plan"
  display_name = "CI: push images, plan"
}

resource "google_service_account_iam_member" "ci_plan" {
  count = local.ci

  service_account_id = google_service_account.ci_plan[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${local.ci_pool}/attribute.repository/${var.github_repository}"
}

resource "google_artifact_registry_repository_iam_member" "ci_plan" {
  count = local.ci

  repository = google_artifact_registry_repository.images.repository_id
  location   = google_artifact_registry_repository.images.location
  role       = "roles/artifactregistry.writer"
  member     = "serviceAccount:${google_service_account.ci_plan[0].email}"
}

# The environment "production": change what runs. It cannot grant anything, so
# changes of permissions are applied by a person.

resource "google_service_account" "ci_release" {
  count = local.ci

  account_id   = "ci-release"
  display_name = "CI: release"
}

resource "google_service_account_iam_member" "ci_release" {
  count = local.ci

  service_account_id = google_service_account.ci_release[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${local.ci_pool}/attribute.environment/production"
}

resource "google_project_iam_member" "ci_release" {
  count = local.ci

  project = var.project_id
  role    = "roles/run.developer"
  member  = "serviceAccount:${google_service_account.ci_release[0].email}"
}

resource "google_service_account_iam_member" "ci_release_runs_as" {
  for_each = local.ci_runs_as

  service_account_id = each.value
  role               = "roles/iam.serviceAccountUser"
  member             = "serviceAccount:${google_service_account.ci_release[0].email}"
}

# Both read all settings, of permissions too, and no secret's or message's content.
resource "google_project_iam_member" "ci_reads" {
  for_each = var.github_repository == null ? {} : {
    for pair in setproduct(["plan", "release"], ["viewer", "iam.securityReviewer"]) :
    join(" ", pair) => { role = "roles/${pair[1]}", account = pair[0] }
  }

  project = var.project_id
  role    = each.value.role
  member = "serviceAccount:${
    each.value.account == "plan" ? google_service_account.ci_plan[0].email : google_service_account.ci_release[0].email
  }"
}
