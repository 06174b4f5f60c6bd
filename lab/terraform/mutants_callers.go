package main

// wrongCallers are mistakes in the callers that reach a service, and in their identity.
var wrongCallers = []mutant{
	{"anyone may ask video by default", []edit{{
		file: "variables_services.tf", in: `variable "video" {`, old: "public              = optional(bool, false)",
		new: "public = optional(bool, true)",
	}}},
	{"everybody may write by default", []edit{{
		file: "variables_services.tf", in: `variable "video" {`, old: "everybody_may_write = optional(bool, false)",
		new: "everybody_may_write = optional(bool, true)",
	}}},
	{"the whole internet may write", []edit{{
		file: "variables_services.tf", old: "!(var.video.public && var.video.everybody_may_write)", new: `var.video.image != ""`,
	}}},
	{"the whole internet may read every user's engagements", []edit{{
		file: "variables_services.tf", old: "!(var.catalog.public && var.catalog.everybody_may_write)", new: `var.catalog.image != ""`,
	}}},
	{"a service without users that has an issuer, too", []edit{{
		file: "video.tf", old: "var.video.everybody_may_write ? local.open_env : merge(",
		new: "var.video.everybody_may_write ? local.open_env : {}, merge(",
	}}},
	{"one open service opens the other", []edit{{
		file: "catalog.tf", old: "var.catalog.everybody_may_write ?", new: "var.video.everybody_may_write ?",
	}}},
	{"no issuer", []edit{{
		file: "variables_access.tf", old: "var.auth_issuer != null || (var.video.everybody_may_write && var.catalog.everybody_may_write)",
		new: `var.auth_issuer != ""`,
	}}},
	{"no issuer for one of both", []edit{{
		file: "variables_access.tf", old: "(var.video.everybody_may_write && var.catalog.everybody_may_write)",
		new: "(var.video.everybody_may_write || var.catalog.everybody_may_write)",
	}}},
	{"an issuer without TLS", []edit{{file: "variables_access.tf", old: `"^https://[a-z0-9](`, new: `"^https?://[a-z0-9](`}}},
	{"an issuer with a query", []edit{{file: "variables_access.tf", old: `(/[^/?#@\\s]+)*/?$`, new: "(/.+)*/?$"}}},
	{"any audience", []edit{{file: "variables_access.tf", old: `"^[^\\s]+$"`, new: `""`}}},
	{"tokens of the issuer for any application", []edit{{
		file: "variables_access.tf", old: "(var.auth_issuer == null) == (var.auth_audience == null)", new: `var.auth_audience != ""`,
	}}},
	{"tenants of no claim", []edit{{file: "variables_services.tf", old: "{ AUTH_TENANT_CLAIM = var.auth_tenant_claim }", new: "{}"}}},
	{"a tenant without an issuer", []edit{{
		file: "variables_access.tf", old: "var.auth_tenant_claim == null || var.auth_issuer != null", new: `var.auth_tenant_claim != ""`,
	}}},
	{"a claim without a name", []edit{{file: "variables_access.tf", old: `"^[^\\s.]+(\\.[^\\s.]+)*$"`, new: `""`}}},
	{"a service that video does not know", []edit{{
		file: "video.tf", old: "[module.catalog.account.email, ", new: "[module.video.account.email, ",
	}}},
	{"a job of catalog's that video does not know", []edit{{
		file: serviceDir + "jobs.tf", old: ": google_service_account.service.email", new: `: "jobs@example.com"`,
	}}},
	{"a service's token for another address", []edit{{
		file: "video.tf", old: `AUTH_SERVICE_AUDIENCE = "https://${local.video_host}"`, new: `AUTH_SERVICE_AUDIENCE = "https://video"`,
	}}},
	{"workers that do not start, for want of an issuer", []edit{{
		file: serviceDir + "workers.tf", old: "for_each = local.env", new: "for_each = {}",
	}}},
	{"a job with a port", []edit{{
		file: serviceDir + "jobs.tf", in: `resource "google_cloud_run_v2_job" "jobs" {`,
		old: "merge(each.value.env,", new: "merge(local.env,",
	}}},
	{"metrics for every caller", []edit{{
		file: serviceDir + "service.tf", old: "merge(local.env, { ADMIN_PORT = tostring(local.admin_port) })", new: "local.env",
	}}},
	{"metrics on the port of the API", []edit{{file: serviceDir + "service.tf", old: "api_port   = 8081", new: "api_port = 8080"}}},
	{"a probe where health is not", []edit{{
		file: serviceDir + "service.tf", old: "path = \"/healthz\"\n          port = local.admin_port", new: `path = "/healthz"`,
	}}},
	{"a probe of workers where health is not", []edit{{
		file: serviceDir + "workers.tf", old: "path = \"/healthz\"\n          port = local.admin_port",
		new: "path = \"/healthz\"\n          port = 8081",
	}}},
	{"reflection in the cloud", []edit{{
		file: "video.tf", old: `["serve", "-outbox`, new: `["serve", "-reflection", "-outbox`,
	}}},
	{"an ingress that is not its own", []edit{{file: "catalog.tf", old: "local.ingress[var.catalog.ingress]",
		new: "local.ingress[var.video.ingress]"}}},
	{"an ingress that is another one", []edit{{
		file: "variables_services.tf", old: `"INGRESS_TRAFFIC_INTERNAL_ONLY"`, new: `"INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER"`,
	}}},
	{"an ingress that there is not", []edit{{file: "variables_services.tf", old: "contains(keys(local.ingress), var.video.ingress)",
		new: `var.video.ingress != ""`}}},
	{"a video that catalog does not reach", []edit{{
		file: "variables_services.tf", old: `var.video.ingress == "all" || var.network != null`, new: `var.video.ingress != ""`,
	}}},
}
