# Where the resources of both services were before modules/service.

moved {
  from = google_service_account.video
  to   = module.video.google_service_account.service
}

moved {
  from = google_service_account.video_migrate
  to   = module.video.google_service_account.migrate
}

moved {
  from = google_cloud_run_v2_service_iam_member.video_invokers
  to   = module.video.google_cloud_run_v2_service_iam_member.invokers
}

moved {
  from = google_secret_manager_secret.video
  to   = module.video.google_secret_manager_secret.connections
}

moved {
  from = google_secret_manager_secret_iam_member.video
  to   = module.video.google_secret_manager_secret_iam_member.connections
}

moved {
  from = google_cloud_run_v2_service.video
  to   = module.video.google_cloud_run_v2_service.service
}

moved {
  from = google_cloud_run_v2_worker_pool.video
  to   = module.video.google_cloud_run_v2_worker_pool.workers
}

moved {
  from = terraform_data.video_migration
  to   = module.video.terraform_data.migration
}

moved {
  from = google_cloud_run_v2_job.video_migrate
  to   = module.video.google_cloud_run_v2_job.migrate
}

moved {
  from = google_service_account.catalog
  to   = module.catalog.google_service_account.service
}

moved {
  from = google_service_account.catalog_migrate
  to   = module.catalog.google_service_account.migrate
}

moved {
  from = google_cloud_run_v2_service_iam_member.catalog_invokers
  to   = module.catalog.google_cloud_run_v2_service_iam_member.invokers
}

moved {
  from = google_secret_manager_secret.catalog
  to   = module.catalog.google_secret_manager_secret.connections
}

moved {
  from = google_secret_manager_secret_iam_member.catalog
  to   = module.catalog.google_secret_manager_secret_iam_member.connections
}

moved {
  from = google_cloud_run_v2_service.catalog
  to   = module.catalog.google_cloud_run_v2_service.service
}

moved {
  from = google_cloud_run_v2_worker_pool.catalog
  to   = module.catalog.google_cloud_run_v2_worker_pool.workers
}

moved {
  from = terraform_data.catalog_migration
  to   = module.catalog.terraform_data.migration
}

moved {
  from = google_cloud_run_v2_job.catalog_migrate
  to   = module.catalog.google_cloud_run_v2_job.migrate
}

moved {
  from = google_cloud_run_v2_job.catalog_dlq
  to   = module.catalog.google_cloud_run_v2_job.jobs["catalog-dlq"]
}

moved {
  from = google_cloud_run_v2_job.catalog_rebuild
  to   = module.catalog.google_cloud_run_v2_job.jobs["catalog-rebuild"]
}

moved {
  from = google_cloud_run_v2_job.video_outbox
  to   = module.video.google_cloud_run_v2_job.jobs["video-outbox"]
}

moved {
  from = google_cloud_run_v2_job.video_drain[0]
  to   = module.video.google_cloud_run_v2_job.jobs["video-drain"]
}
