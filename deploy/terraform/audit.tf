# Who starts an operator's command. That is a Data Access log, which Google leaves off: the log of
# an execution does not name the account, and --by is what the account says of itself. Of Cloud Run's
# operations DATA_WRITE has the starts of jobs; changes of services and jobs are logged in any case.
# It replaces what was set for this service by hand.
resource "google_project_iam_audit_config" "run" {
  project = var.project_id
  service = "run.googleapis.com"

  audit_log_config {
    log_type = "DATA_WRITE"
  }
}
