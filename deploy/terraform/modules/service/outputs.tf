output "account" {
  description = "The identity of the service, of its workers, and of its jobs without owner."
  value       = google_service_account.service
}

output "migrate_account" {
  description = "The identity of the migrations, and of jobs with owner."
  value       = google_service_account.migrate
}

output "service" {
  description = "The service."
  value       = google_cloud_run_v2_service.service
}

output "workers" {
  description = "The pool of workers: a list of one, or an empty one."
  value       = google_cloud_run_v2_worker_pool.workers
}

output "migrate" {
  description = "The job of the migrations."
  value       = google_cloud_run_v2_job.migrate
}

output "jobs" {
  description = "The other jobs, by name."
  value       = google_cloud_run_v2_job.jobs
}

output "secrets" {
  description = "The secrets, by name."
  value       = google_secret_manager_secret.connections
}

# For the tests, which see of a module only its outputs.

output "migration" {
  description = "It is replaced whenever the migrations run."
  value       = terraform_data.migration
}

output "invokers" {
  description = "The grants to call the service, by member."
  value       = google_cloud_run_v2_service_iam_member.invokers
}

output "secret_grants" {
  description = "The grants to read the secrets, by secret."
  value       = google_secret_manager_secret_iam_member.connections
}
