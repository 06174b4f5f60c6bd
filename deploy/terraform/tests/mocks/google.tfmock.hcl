# What Google would answer, where a made-up text would not do.

mock_resource "google_cloud_run_v2_service" {
  defaults = {
    uri = "https://service-abc123-ew.a.run.app"
  }
}

mock_resource "google_sql_database_instance" {
  defaults = {
    connection_name = "acme-test:europe-west1:lockstep"
  }
}

# Their emails are made up, each another.
mock_resource "google_service_account" {
  defaults = {
    name = "projects/acme-test/serviceAccounts/mocked@acme-test.iam.gserviceaccount.com"
  }
}
