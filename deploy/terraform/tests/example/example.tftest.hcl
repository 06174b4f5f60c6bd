# terraform.tfvars.example, whose values `make tf-check` gives to this, is a plan, as it
# stands and with all that it suggests.

mock_provider "google" {
  source = "./tests/mocks"
}

run "example" {
  command = plan

  assert {
    condition     = toset(keys(module.video.invokers)) == var.video.invokers && toset(keys(module.catalog.invokers)) == var.catalog.invokers
    error_message = "Whom the example invites may call."
  }
}
