output "video_url" {
  description = "video's API: REST and gRPC."
  value       = module.video.service.uri
}

output "catalog_url" {
  description = "catalog's API: REST and gRPC."
  value       = module.catalog.service.uri
}

output "images" {
  description = "Where to push images: this, a slash, the service's name."
  value       = "${var.region}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.images.repository_id}"
}

output "secrets" {
  description = "The secrets that need a version: gcloud secrets versions add NAME --data-file=-."
  value       = setunion(keys(module.video.secrets), keys(module.catalog.secrets))
}

output "pubsub_endpoint" {
  description = "The regional endpoint, for other publishers to these topics."
  value       = local.pubsub_endpoint
}

output "sql_connection" {
  description = "The Cloud SQL instance, for cloud-sql-proxy and for host=/cloudsql/… in the connection secrets; null without cloud_sql."
  value       = one(local.sql_instances)
}

output "ci" {
  description = "The provider and accounts with which a GitHub workflow signs in; null without github_repository."
  value = var.github_repository == null ? null : {
    workload_identity_provider = google_iam_workload_identity_pool_provider.github[0].name
    plan_service_account       = google_service_account.ci_plan[0].email
    push_service_account       = google_service_account.ci_push[0].email
    release_service_account    = google_service_account.ci_release[0].email
  }
}
