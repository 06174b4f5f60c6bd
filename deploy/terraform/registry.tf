# The registry of the images. They are deployed by digest, so a tag decides nothing.
# Images that are old and not among the newest are deleted; Cloud Run keeps the image of
# a serving revision.
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
