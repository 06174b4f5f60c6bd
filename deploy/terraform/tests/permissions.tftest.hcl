# Who may do what: the rules. grants.txt next to this file is the whole list.

mock_provider "google" {
  source = "./tests/mocks"
}

variables {
  project_id     = "acme-test"
  project_number = "123456789012"
  auth_issuer    = "https://issuer.example.com/auth/v1"
  auth_audience  = "authenticated"
  video          = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000" }
  catalog        = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111" }
}

run "no_caller_from_outside" {
  command = plan

  assert {
    condition     = length(module.video.invokers) + length(module.catalog.invokers) == 0
    error_message = "Without named invokers, no caller from outside may call."
  }
}

run "who_started_a_command" {
  command = plan

  assert {
    condition     = google_project_iam_audit_config.run.service == "run.googleapis.com" && [for config in google_project_iam_audit_config.run.audit_log_config : config.log_type] == ["DATA_WRITE"]
    error_message = "The starts of jobs must be in the audit log, with the account: an operator's --by is not checked."
  }
  assert {
    condition     = alltrue([for config in google_project_iam_audit_config.run.audit_log_config : config.exempted_members == null])
    error_message = "No account may start a job without an entry."
  }
}

run "everybody_may_ask_video" {
  command = plan

  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", public = true, invokers = ["user:me@example.com"] }
  }
  assert {
    condition     = keys(module.video.invokers) == ["allUsers"] && length(module.catalog.invokers) == 0
    error_message = "video.public must let every caller ask video, who then has to sign in, and none catalog."
  }
}

run "everybody_may_ask_catalog" {
  command = plan

  variables {
    catalog = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/catalog@sha256:1111111111111111111111111111111111111111111111111111111111111111", public = true, invokers = ["user:me@example.com"] }
  }
  assert {
    condition     = length(module.video.invokers) == 0 && keys(module.catalog.invokers) == ["allUsers"]
    error_message = "catalog.public must let every caller ask catalog, and none video."
  }
}

run "one_may_write" {
  command = plan

  variables {
    video = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", invokers = ["user:me@example.com"] }
  }
  assert {
    condition     = keys(module.video.invokers) == ["user:me@example.com"] && length(module.catalog.invokers) == 0
    error_message = "video.invokers must let in whom it names, to video alone."
  }
}

run "permissions" {
  command = apply

  variables {
    video                = { image = "europe-west1-docker.pkg.dev/acme-test/lockstep/video@sha256:0000000000000000000000000000000000000000000000000000000000000000", min_instances = 0, drain_schedule = "*/5 * * * *" }
    cloud_sql            = {}
    github_repository    = "acme/pair"
    github_repository_id = "123456789"
  }

  assert {
    condition     = alltrue([for topic, grant in google_pubsub_topic_iam_member.video_publishes : grant.topic == topic && grant.role == "roles/pubsub.publisher" && grant.member == "serviceAccount:${module.video.account.email}"])
    error_message = "video must publish to its topics, and to them alone."
  }
  assert {
    condition     = alltrue([for topic, grant in google_pubsub_subscription_iam_member.catalog_subscribes : grant.subscription == "${topic}.catalog" && grant.role == "roles/pubsub.subscriber" && grant.member == "serviceAccount:${module.catalog.account.email}"])
    error_message = "catalog must subscribe to its subscriptions, and to them alone."
  }
  assert {
    condition     = alltrue([for topic, grant in google_pubsub_subscription_iam_member.catalog_views_subscription : grant.subscription == "${topic}.catalog" && grant.role == "roles/pubsub.viewer" && grant.member == "serviceAccount:${module.catalog.account.email}"])
    error_message = "catalog must see the retention of its subscriptions, and of them alone."
  }
  assert {
    condition = (
      google_cloud_run_v2_service_iam_member.catalog_calls_video.name == module.video.service.name &&
      google_cloud_run_v2_service_iam_member.catalog_calls_video.role == "roles/run.invoker" &&
      google_cloud_run_v2_service_iam_member.catalog_calls_video.member == "serviceAccount:${module.catalog.account.email}"
    )
    error_message = "catalog must be allowed to call video: gaps are repaired from there."
  }
  assert {
    condition = (
      { for secret, grant in module.video.secret_grants : secret => grant.member } == {
        video-database-url       = "serviceAccount:${module.video.account.email}"
        video-admin-database-url = "serviceAccount:${module.video.migrate_account.email}"
      } &&
      { for secret, grant in module.catalog.secret_grants : secret => grant.member } == {
        catalog-database-url       = "serviceAccount:${module.catalog.account.email}"
        catalog-admin-database-url = "serviceAccount:${module.catalog.migrate_account.email}"
      }
    )
    error_message = "The administrator's connection is for the migrations, the service's own for the service."
  }
  assert {
    condition     = module.video.service.template[0].service_account == module.video.account.email && module.catalog.service.template[0].service_account == module.catalog.account.email
    error_message = "Each service must run as itself."
  }
  assert {
    condition     = google_iam_workload_identity_pool_provider.github[0].attribute_condition == "assertion.repository == 'acme/pair' && assertion.repository_id == '123456789'"
    error_message = "GitHub's tokens must be of this repository: the issuer is the same for all of GitHub."
  }
  # What a token says of itself, and its workflow cannot choose.
  assert {
    condition = google_iam_workload_identity_pool_provider.github[0].attribute_mapping == tomap(merge({ "google.subject" = "assertion.sub" }, {
      for job, subject in { plan = ":ref:refs/heads/main", push = ":environment:registry", release = ":environment:production" } :
      "attribute.${job}" => "assertion.ref == 'refs/heads/main' && assertion.workflow_ref == 'acme/pair/.github/workflows/ci.yml@refs/heads/main' && assertion.sub.endsWith('${subject}') ? 'ci' : 'none'"
    }))
    error_message = "Only ci.yml as it is on main may sign in, since another branch may hold any workflow; and a job's subject must tell which job it is."
  }
  assert {
    condition = (
      endswith(google_service_account_iam_member.ci_plan[0].member, "/attribute.plan/ci") &&
      endswith(google_service_account_iam_member.ci_push[0].member, "/attribute.push/ci") &&
      endswith(google_service_account_iam_member.ci_release[0].member, "/attribute.release/ci") &&
      alltrue([for grant in concat(google_service_account_iam_member.ci_plan, google_service_account_iam_member.ci_push, google_service_account_iam_member.ci_release) : startswith(grant.member, "principalSet://")])
    )
    error_message = "Each account must be for one job: what plans cannot push, what pushes cannot release."
  }
  assert {
    condition     = google_artifact_registry_repository_iam_member.ci_push[0].member == "serviceAccount:${google_service_account.ci_push[0].email}" && google_artifact_registry_repository_iam_member.ci_push[0].role == "roles/artifactregistry.writer"
    error_message = "Only the account that pushes may write the registry."
  }
  assert {
    condition     = alltrue([for grant in google_project_iam_member.ci_reads : endswith(grant.role, "iewer") || contains(["roles/artifactregistry.reader", "roles/iam.securityReviewer"], grant.role)])
    error_message = "Who plans must read, and change nothing."
  }
  # An export is a copy of all rows, in a bucket of the account's choice.
  assert {
    condition = (
      google_project_iam_custom_role.ci_reads[0].permissions == toset(["cloudsql.databases.get", "cloudsql.instances.get", "iam.workloadIdentityPools.getAttestationRules"]) &&
      { for job, grant in google_project_iam_member.ci_reads_custom : job => grant.member } == {
        plan    = "serviceAccount:${google_service_account.ci_plan[0].email}"
        release = "serviceAccount:${google_service_account.ci_release[0].email}"
      }
    )
    error_message = "Both accounts that plan must read the database's settings and the pool's rules, and be unable to export the database."
  }
  # A basic role reads logs too, and so what operators' jobs print.
  assert {
    condition = alltrue([
      for grant in concat(values(google_project_iam_member.ci_reads), google_project_iam_member.ci_release, values(google_project_iam_member.sql_client)) :
      !contains(["roles/viewer", "roles/browser", "roles/editor", "roles/owner"], grant.role) && !startswith(grant.role, "roles/logging.")
    ])
    error_message = "No account may have a basic role, or read logs."
  }
  assert {
    condition = (
      google_project_iam_custom_role.ci_schemas[0].permissions == toset(["pubsub.schemas.commit", "pubsub.schemas.get", "pubsub.schemas.validate"]) &&
      { for topic, grant in google_pubsub_schema_iam_member.ci_release : grant.schema => grant.member } == { for schema in google_pubsub_schema.events : schema.name => "serviceAccount:${google_service_account.ci_release[0].email}" }
    )
    error_message = "A release must be able to add a field to an event, and to do nothing else in Pub/Sub."
  }
}
