# GitHub's workflows sign in without a key: they show a token of GitHub's, and get a
# token of a service account's for an hour. There are three accounts, each for one job of
# ci.yml on main: one plans, one pushes images in the environment "registry", and one
# releases in the environment "production", which can require a reviewer.

locals {
  ci = var.github_repository == null ? 0 : 1

  ci_pool = one(google_iam_workload_identity_pool.ci[*].name)

  # A branch may have any workflow, and any version of ci.yml. These conditions select
  # the merged version. Both claims are in the token, and a workflow cannot choose them.
  ci_on_main = join(" && ", [
    "assertion.ref == 'refs/heads/main'",
    "assertion.workflow_ref == '${coalesce(var.github_repository, "none")}/.github/workflows/ci.yml@refs/heads/main'",
  ])

  # The end of a token's subject: the environment of its job, or the branch if the job has
  # none. So a tool in the job that plans can get no token to push or to release with.
  ci_subject_of = {
    plan    = ":ref:refs/heads/main"
    push    = ":environment:registry"
    release = ":environment:production"
  }

  # The account that reads settings, also permissions, for a plan. None of these roles
  # reads a log, a secret's content or a message. cloudsql.viewer is not among them: it may
  # export the whole database.
  ci_reads = [
    "artifactregistry.reader", "cloudscheduler.viewer", "iam.roleViewer", "iam.securityReviewer",
    "iam.serviceAccountViewer", "iam.workloadIdentityPoolViewer", "monitoring.viewer", "pubsub.viewer", "run.viewer",
    "secretmanager.viewer",
  ]

  # A release changes images: services, workers and jobs, which run as these.
  ci_runs_as = var.github_repository == null ? {} : {
    video           = module.video.account.name
    video-migrate   = module.video.migrate_account.name
    catalog         = module.catalog.account.name
    catalog-migrate = module.catalog.migrate_account.name
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

  # All of GitHub shares the issuer: without this condition the workflows of every
  # repository get in. A name can change hands, a number cannot.
  attribute_condition = "assertion.repository == '${var.github_repository}' && assertion.repository_id == '${var.github_repository_id}'"

  # Only the subject tells the jobs apart in every token: there is a claim for the
  # environment only if the job has one. The beginning of the subject depends on the
  # repository's age.
  attribute_mapping = merge({ "google.subject" = "assertion.sub" }, {
    for job, subject in local.ci_subject_of :
    "attribute.${job}" => "${local.ci_on_main} && assertion.sub.endsWith('${subject}') ? 'ci' : 'none'"
  })

  oidc {
    issuer_uri = "https://token.actions.githubusercontent.com"
  }
}

# The job that plans: read the settings that a plan compares.

resource "google_service_account" "ci_plan" {
  count = local.ci

  account_id   = "ci-plan"
  display_name = "CI: plan"
}

resource "google_service_account_iam_member" "ci_plan" {
  count = local.ci

  service_account_id = google_service_account.ci_plan[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${local.ci_pool}/attribute.plan/ci"
}

# The environment "registry": push images. Every image in the registry was built by ci.yml
# on main, or pushed by a person.

resource "google_service_account" "ci_push" {
  count = local.ci

  account_id   = "ci-push"
  display_name = "CI: push images"
}

resource "google_service_account_iam_member" "ci_push" {
  count = local.ci

  service_account_id = google_service_account.ci_push[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${local.ci_pool}/attribute.push/ci"
}

resource "google_artifact_registry_repository_iam_member" "ci_push" {
  count = local.ci

  repository = google_artifact_registry_repository.images.repository_id
  location   = google_artifact_registry_repository.images.location
  role       = "roles/artifactregistry.writer"
  member     = "serviceAccount:${google_service_account.ci_push[0].email}"
}

# The environment "production": change the images that run, and the schemas of
# events. It cannot grant anything, so a person applies changes of permissions.

resource "google_service_account" "ci_release" {
  count = local.ci

  account_id   = "ci-release"
  display_name = "CI: release"
}

resource "google_service_account_iam_member" "ci_release" {
  count = local.ci

  service_account_id = google_service_account.ci_release[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "principalSet://iam.googleapis.com/${local.ci_pool}/attribute.release/ci"
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

# A field that is added to an event is a revision of its schema. pubsub.editor could also
# send a subscription's messages elsewhere.
resource "google_project_iam_custom_role" "ci_schemas" {
  count = local.ci

  role_id     = "lockstepSchemas"
  title       = "Commit revisions of a schema"
  permissions = ["pubsub.schemas.commit", "pubsub.schemas.get", "pubsub.schemas.validate"]
}

resource "google_pubsub_schema_iam_member" "ci_release" {
  for_each = var.github_repository == null ? toset([]) : local.topics

  schema = google_pubsub_schema.events[each.key].name
  role   = google_project_iam_custom_role.ci_schemas[0].name
  member = "serviceAccount:${google_service_account.ci_release[0].email}"
}

# What a plan reads besides: the database, and the rules of the identity pool, which the
# provider lists with the pool.
resource "google_project_iam_custom_role" "ci_reads" {
  count = local.ci

  role_id     = "lockstepReads"
  title       = "Read what a plan compares"
  permissions = ["cloudsql.databases.get", "cloudsql.instances.get", "iam.workloadIdentityPools.getAttestationRules"]
}

resource "google_project_iam_member" "ci_reads_custom" {
  for_each = var.github_repository == null ? {} : { plan = google_service_account.ci_plan[0].email, release = google_service_account.ci_release[0].email }

  project = var.project_id
  role    = google_project_iam_custom_role.ci_reads[0].name
  member  = "serviceAccount:${each.value}"
}

resource "google_project_iam_member" "ci_reads" {
  for_each = var.github_repository == null ? {} : {
    for pair in setproduct(["plan", "release"], local.ci_reads) :
    join(" ", pair) => { role = "roles/${pair[1]}", account = pair[0] }
  }

  project = var.project_id
  role    = each.value.role
  member = "serviceAccount:${
    each.value.account == "plan" ? google_service_account.ci_plan[0].email : google_service_account.ci_release[0].email
  }"
}
