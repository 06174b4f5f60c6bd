# Where the images are. They are deployed by digest; a tag, once pushed, stays.
resource "google_artifact_registry_repository" "images" {
  repository_id = "lockstep"
  location      = var.region
  format        = "DOCKER"

  docker_config {
    immutable_tags = true
  }
}
