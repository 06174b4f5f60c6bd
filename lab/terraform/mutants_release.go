package main

// wrongReleases are mistakes in the permissions to plan, to push images and to release.
var wrongReleases = []mutant{
	{"the job that plans pushes images", []edit{{file: "ci.tf", old: "/attribute.push/ci", new: "/attribute.plan/ci"}}},
	{"the job that pushes images releases", []edit{{
		file: "ci.tf", old: `release = ":environment:production"`, new: `release = ":environment:registry"`,
	}}},
	{"a job without an environment pushes images", []edit{{
		file: "ci.tf", old: `push    = ":environment:registry"`, new: `push    = ":ref:refs/heads/main"`,
	}}},
	{"any branch signs in", []edit{{file: "ci.tf", old: "    \"assertion.ref == 'refs/heads/main'\",\n"}}},
	{"any workflow of main signs in", []edit{{file: "ci.tf", old: "@refs/heads/main'\",\n", new: "' || true\",\n"}}},
	{"any branch releases that names the environment", []edit{{
		file: "ci.tf", old: "\"${local.ci_on_main} && assertion.sub", new: "\"assertion.sub",
	}}},
	{"a repository by its name alone", []edit{{
		file: "variables_access.tf", old: "(var.github_repository == null) == (var.github_repository_id == null)",
		new: "var.github_repository_id == null || var.github_repository != null",
	}}},
	{"a basic role for the planning identity", []edit{{file: "ci.tf", old: `"run.viewer",`, new: `"run.viewer", "viewer",`}}},
	{"the planning identity reads logs", []edit{{file: "ci.tf", old: `"run.viewer",`, new: `"run.viewer", "logging.viewer",`}}},
	{"the planning identity exports the database", []edit{{
		file: "ci.tf", old: `"cloudscheduler.viewer", "iam.roleViewer"`, new: `"cloudscheduler.viewer", "cloudsql.viewer", "iam.roleViewer"`,
	}}},
	{"an export among what a plan reads", []edit{{
		file: "ci.tf", old: `"cloudsql.instances.get", `, new: `"cloudsql.instances.export", "cloudsql.instances.get", `,
	}}},
	{"a release that cannot plan", []edit{{
		file: "ci.tf", old: ", release = google_service_account.ci_release[0].email }", new: " }",
	}}},
	{"the releasing identity may redirect messages", []edit{{
		file: "ci.tf", old: `"pubsub.schemas.validate"]`, new: `"pubsub.schemas.validate", "pubsub.subscriptions.update"]`,
	}}},
	{"an image from another repository", []edit{{
		file: "variables_services.tf", old: `startswith(var.catalog.image, "${local.images}/catalog@sha256:") && `, new: "",
	}}},
}

// wrongJobs are mistakes in the jobs.
var wrongJobs = []mutant{
	{"an operator's command that is ended like a drain", []edit{{
		file: "video.tf", old: `timeout = "86400s" # purge`, new: `timeout = "600s" #`,
	}}},
	{"a schedule that runs the operators' job", []edit{{
		file: "video.tf", in: `resource "google_cloud_scheduler_job" "video_drain" {`, old: "local.drain[0].id",
		new: `module.video.jobs["video-outbox"].id`,
	}}},
	{"a schedule that may run the operators' job", []edit{{
		file: "video.tf", in: `resource "google_cloud_run_v2_job_iam_member" "video_drain" {`, old: "local.drain[0].name",
		new: `module.video.jobs["video-outbox"].name`,
	}}},
	{"a drain that only shows the outbox", []edit{{
		file: "video.tf", old: `["outbox", "drain"]`, new: `["outbox", "status"]`,
	}}},
	{"a migration as the service", []edit{{
		file: serviceDir + "jobs.tf", old: `connections["${var.name}-admin-database-url"]`, new: `connections["${var.name}-database-url"]`,
	}}},
	{"a migration as the owner of the other schema", []edit{{
		file: serviceDir + "jobs.tf", old: `google_secret_manager_secret.connections["${var.name}-admin-database-url"].secret_id`,
		new: `"video-admin-database-url"`,
	}}},
	{"a service that owns its schema", []edit{{
		file: serviceDir + "service.tf", in: `resource "google_secret_manager_secret_iam_member" "connections" {`,
		old: "google_service_account.migrate.email :", new: "google_service_account.service.email :",
	}}},
	{"a rebuild that may not call video", []edit{
		{file: "catalog.tf", in: `resource "` + callsVideo + `" "rebuild_calls_video" {`},
	}},
	{"a rebuild that video does not know", []edit{{
		file: "video.tf", old: ", module.catalog.migrate_account.email])", new: "])",
	}}},
	{"a rebuild without video's address", []edit{{
		file: "catalog.tf", old: "        VIDEO_SERVICE_ADDR = local.catalog_env.VIDEO_SERVICE_ADDR\n",
	}}},
	{"a rebuild as the service", []edit{{
		file: "catalog.tf", old: "      owner   = true\n",
	}}},
	{"a rebuild that nobody has begun", []edit{{
		file: "catalog.tf", old: `["rebuild", "status"]`, new: `["rebuild", "run", "--yes"]`,
	}}},
	{"a job that changes and keeps its token", []edit{{file: serviceDir + "jobs.tf", old: "    var.deployment.labels,\n"}}},
	{"a job that another policy lets run, with its token", []edit{{
		file: serviceDir + "jobs.tf", old: "    var.deployment.binary_authorization,\n",
	}}},
	{"a rebuild that is ended like a migration", []edit{{
		file: "catalog.tf", old: `timeout = "86400s" # a million`, new: `timeout = "960s" #`,
	}}},
}
