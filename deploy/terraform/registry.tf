# The registry of the images. They are deployed by digest, so a tag decides nothing.
# The image that runs must stay here: a new revision of it, as after another version of a
# secret, reads it again. Nothing here knows which image runs, so the newest are many: an
# image is deleted if it is old and 500 were pushed after it. An image has 10 MB, so 500 of
# each service cost a dollar a month.
resource "google_artifact_registry_repository" "images" {
  repository_id = "lockstep"
  location      = var.region
  format        = "DOCKER"

  cleanup_policies {
    id     = "newest"
    action = "KEEP"

    most_recent_versions {
      keep_count = 500
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
