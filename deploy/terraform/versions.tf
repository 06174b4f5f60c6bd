terraform {
  required_version = ">= 1.9"

  required_providers {
    google = {
      source = "hashicorp/google"
      # 7.42 brought run_execution_token, 7.44 mended a difference that never ended.
      version = ">= 7.44, < 9.0"
    }
  }
}

# Credentials and endpoints come from the environment. There are no data sources:
# a plan of a new project asks nobody.
provider "google" {
  project = var.project_id
  region  = var.region
}
