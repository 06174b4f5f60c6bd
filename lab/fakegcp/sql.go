package fakegcp

// Cloud SQL names a resource by the last part of its name, and has its own form of operations.

var databaseInstance = &resourceKind{
	collection: "projects/*/instances", identify: fromBody, short: true, operation: sqlOperation,
	complete: func(s *Server, r *resource, old fields) {
		// An update may leave out fields that cannot be changed.
		for _, name := range []string{"region", "databaseVersion"} {
			if r.body[name] == nil {
				carry(r.body, old, name)
			}
		}
		region := text(r.body["region"])
		r.body["state"], r.body["project"], r.body["instanceType"] = "RUNNABLE", s.options.Project, "CLOUD_SQL_INSTANCE"
		r.body["name"], r.body["backendType"], r.body["connectionName"] = r.id(), "SECOND_GEN", s.options.Project+":"+region+":"+r.id()
		r.body["selfLink"] = s.URL() + "/" + r.api + "/sql/v1beta4/" + r.name
		r.body["serviceAccountEmailAddress"] = "p" + s.options.Number + "-" + r.id() + "@gcp-sa-cloud-sql.iam.gserviceaccount.com"
		r.body["ipAddresses"] = []any{fields{"type": "PRIMARY", "ipAddress": "192.0.2.1"}}
		settings, before := object(r.body, "settings"), object(old, "settings")
		if settings == nil {
			settings = fields{}
			r.body["settings"] = settings
		}
		for name, value := range map[string]any{
			"activationPolicy": "ALWAYS", "pricingPlan": "PER_USE", "dataDiskType": "PD_SSD", "availabilityType": "ZONAL",
		} {
			if settings[name] == nil {
				settings[name] = value
			}
		}
		settings["settingsVersion"] = s.next()
		carry(settings, before, "edition")
	},
}

var database = &resourceKind{
	collection: "projects/*/instances/*/databases", identify: fromBody, short: true, needs: true, operation: sqlOperation,
	complete: func(s *Server, r *resource, _ fields) {
		r.body["selfLink"] = s.URL() + "/" + r.api + "/sql/v1beta4/" + r.name
	},
}

var databaseUser = &resourceKind{
	collection: "projects/*/instances/*/users", identify: fromBody, short: true, needs: true, operation: sqlOperation, listed: "items",
	complete: func(_ *Server, r *resource, _ fields) { delete(r.body, "password") }, // never returned
}

// sqlOperation returns an operation that is done. The operation does not contain the resource, so
// the caller reads the resource separately.
func sqlOperation(r *resource, failed error) fields {
	operation := fields{"kind": "sql#operation", "name": "operation-" + r.id(), "status": "DONE", "targetId": r.id()}
	if failed != nil {
		operation["error"] = fields{"errors": []any{fields{"code": "FAILED", "message": failed.Error()}}}
	}
	return operation
}
