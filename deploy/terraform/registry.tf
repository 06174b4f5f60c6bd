# Where the images are. They are deployed by digest, so a tag decides nothing. What is
# old and not among the newest goes; Cloud Run keeps what a serving revision runs.
resource "google_artifact_registry_repository" "images" {
  repository_id = "lockstep"
  location      = var.region
  format        = "DOCKER"

  cleanup_policies {
    id     = "newest"
    action = "KEEP"

    most_recent_versions {
      keep_count = 50
    }
  }

  cleanup_policies {
    id     = "old"
    action = "DELETE"

    condition {
      older_than = "7776000s" # 90 days
      tag_state  = "ANY"
    }
  }
}
