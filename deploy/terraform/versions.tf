terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source = "hashicorp/google"
      # The version that the tests run with; 7.42 brought run_execution_token, 8.0
      # deletion_policy.
      version = "~> 8.0"
    }
  }
}

# Credentials and endpoints come from the environment. There are no data sources: a plan
# of a new project sends no request.
provider "google" {
  project        = var.project_id
  region         = var.region
  default_labels = var.labels
}
