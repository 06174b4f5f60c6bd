package main

// wrongProjects are mistakes in the settings of the project that no service notices.
var wrongProjects = []mutant{
	{"operators' commands that nobody has started", []edit{{file: "audit.tf", old: `"DATA_WRITE"`, new: `"DATA_READ"`}}},
	{"requests that fail without a collector, without an alert", []edit{{file: "alerts.tf", old: " || can(alert.instead)"}}},
	{"an alert on a metric that nothing collects", []edit{{
		file: "alerts.tf", old: "local.collected ? each.value.expr : try(each.value.instead, each.value.expr)", new: "each.value.expr",
	}}},
	{"a budget that tells a pager", []edit{{
		file: "monitoring.tf", old: "monitoring_notification_channels = var.budget.email_channels",
		new: "monitoring_notification_channels = var.notification_channels",
	}}},
	{"a registry that deletes the image that runs", []edit{{file: "registry.tf", old: "keep_count = 500", new: "keep_count = 50"}}},
	{"a revision without labels", []edit{{file: serviceDir + "workers.tf", old: "    labels          = var.deployment.labels\n"}}},
	{"a database without labels", []edit{{file: "database.tf", old: "user_labels                 = var.labels #", new: "#"}}},
	{"an alert without labels", []edit{{
		file: "monitoring.tf", in: `resource "google_monitoring_alert_policy" "disk" {`, old: "merge(var.labels, { severity = \"page\" })",
		new: "{ severity = \"page\" }",
	}}},
}
