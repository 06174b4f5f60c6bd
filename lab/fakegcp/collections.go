package fakegcp

// The services of these kinds of resources add few or no fields to a resource.

var repository = &resourceKind{
	collection: "projects/*/locations/*/repositories", identify: fromQuery("repository_id"), operation: longRunning,
	complete: func(_ *Server, r *resource, _ fields) { r.body["mode"] = "STANDARD_REPOSITORY" },
}

var schedule = &resourceKind{
	collection: "projects/*/locations/*/jobs", identify: fromBody,
	complete: func(_ *Server, r *resource, old fields) {
		r.body["state"] = "ENABLED"
		carry(r.body, old, "state")
	},
	actions: map[string]func(*Server, *call) (fields, error){"pause": pause("PAUSED"), "resume": pause("ENABLED")},
}

func pause(state string) func(*Server, *call) (fields, error) {
	return func(s *Server, c *call) (fields, error) {
		r, err := s.get(c)
		if err != nil {
			return nil, err
		}
		r.body["state"] = state
		return r.body, nil
	}
}

var logMetric = &resourceKind{collection: "projects/*/metrics", identify: fromBody, short: true}

// monitored are the kinds of resources of Cloud Monitoring. The service chooses most names itself.
var monitored = []*resourceKind{
	{collection: "projects/*/alertPolicies", identify: generated, complete: nameConditions},
	{collection: "projects/*/notificationChannels", identify: generated},
	{collection: "projects/*/dashboards", identify: generated, complete: func(s *Server, r *resource, _ fields) { r.body["etag"] = s.next() }},
	{collection: "projects/*/uptimeCheckConfigs", identify: generated},
	{collection: "projects/*/services", identify: fromQuery("serviceId")},
	{collection: "projects/*/services/*/serviceLevelObjectives", identify: fromQuery("serviceLevelObjectiveId"), needs: true},
}

func nameConditions(s *Server, r *resource, _ fields) {
	for _, condition := range objects(r.body["conditions"]) {
		if condition["name"] == nil {
			condition["name"] = r.name + "/conditions/" + s.next()
		}
	}
	r.body["creationRecord"] = fields{"mutateTime": created}
}
