package fakegcp

import (
	"fmt"
	"strings"
)

// created is the creation time of every resource. It is constant, so that golden files never
// change.
const created = "2026-01-01T00:00:00Z"

var runService = &resourceKind{
	collection: "projects/*/locations/*/services", identify: fromQuery("serviceId"), operation: longRunning,
	check: func(s *Server, _ *call, body fields) error { return s.checkRevision(body, serviceWorkload) },
	complete: func(s *Server, r *resource, old fields) {
		s.revise(r, old)
		region := strings.Split(r.name, "/")[3]
		address := fmt.Sprintf("https://%s-%s.%s.run.app", r.id(), s.options.Number, region)
		r.body["uri"], r.body["urls"] = address, []any{address}
		for name, value := range map[string]any{"launchStage": "GA", "ingress": "INGRESS_TRAFFIC_ALL"} {
			if r.body[name] == nil {
				r.body[name] = value
			}
		}
		carry(r.body, old, "latestReadyRevision", "latestCreatedRevision")
		if changesTemplate(r, old) {
			r.body["latestCreatedRevision"] = fmt.Sprintf("%s/revisions/%s-%05s", r.name, r.id(), r.body["generation"])
		} else {
			carry(r.body, old, "terminalCondition")
		}
	},
	done: (*Server).startRevision,
}

var workerPool = &resourceKind{
	collection: "projects/*/locations/*/workerPools", identify: fromQuery("workerPoolId"), operation: longRunning,
	check:    func(s *Server, _ *call, body fields) error { return s.checkRevision(body, workersWorkload) },
	complete: (*Server).revise,
}

var runJob = &resourceKind{
	collection: "projects/*/locations/*/jobs", identify: fromQuery("jobId"), operation: longRunning,
	check:    func(s *Server, _ *call, body fields) error { return s.checkRevision(body, jobWorkload) },
	complete: (*Server).revise,
	done:     (*Server).runIfAsked,
	actions:  map[string]func(*Server, *call) (fields, error){"run": (*Server).runNow},
}

// revise sets the fields that services, jobs and worker pools all have.
func (s *Server) revise(r *resource, old fields) {
	generation := 1
	if old != nil {
		_, _ = fmt.Sscan(text(old["generation"]), &generation)
		generation++
	} else {
		r.body["uid"], r.body["createTime"] = "uid-"+s.next(), created
	}
	carry(r.body, old, "uid", "createTime", "executionCount", "latestCreatedExecution")
	r.body["generation"], r.body["observedGeneration"] = fmt.Sprint(generation), fmt.Sprint(generation)
	r.body["etag"] = "etag-" + s.next()
	r.body["terminalCondition"] = fields{"type": "Ready", "state": "CONDITION_SUCCEEDED"}
}

// A Container is the container of an instance of a service, a job or a worker
// pool.
type Container struct {
	Image         string
	Command, Args []string
	// Environment has the variables as an instance sees them. The value of a secret replaces the
	// reference to the secret.
	Environment    map[string]string
	ServiceAccount string
}

// Container returns the first container of a Cloud Run resource as it would start now. name is the
// full name of the resource. The fake does not run further containers, such as a collector of
// metrics.
func (s *Server) Container(name string) (Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, found := s.resources[key(runAPI, name)]
	if !found {
		return Container{}, fmt.Errorf("no %s in Cloud Run", name)
	}
	revision := revisionOf(r.body)
	containers := objects(revision["containers"])
	if len(containers) == 0 {
		return Container{}, fmt.Errorf("%s has no container", name)
	}
	c := Container{
		Image: text(containers[0]["image"]), ServiceAccount: text(revision["serviceAccount"]), Environment: make(map[string]string),
		Command: texts(containers[0]["command"]), Args: texts(containers[0]["args"]),
	}
	for _, variable := range objects(containers[0]["env"]) {
		value := text(variable["value"])
		if reference := object(variable, "valueSource", "secretKeyRef"); reference != nil {
			version, err := s.version(s.versionName(reference))
			if err != nil {
				return Container{}, fmt.Errorf("%s: variable %s: %w", name, variable["name"], err)
			}
			if value, err = version.secret(); err != nil {
				return Container{}, fmt.Errorf("%s: variable %s: %w", name, variable["name"], err)
			}
		}
		c.Environment[text(variable["name"])] = value
	}
	return c, nil
}

// revisionOf returns the template for the instances. A job has a template of executions, and this
// contains the template of tasks.
func revisionOf(body fields) fields {
	if inner := object(body, "template", "template"); inner != nil {
		return inner
	}
	return object(body, "template")
}

// versionName returns the full name of the secret version that a variable's reference names.
func (s *Server) versionName(reference fields) string {
	secret := text(reference["secret"])
	if !strings.Contains(secret, "/") {
		secret = "projects/" + s.options.Project + "/secrets/" + secret
	}
	version := text(reference["version"])
	if version == "" {
		version = "latest"
	}
	return secret + "/versions/" + version
}

func texts(value any) []string {
	list, _ := value.([]any)
	found := make([]string, 0, len(list))
	for _, element := range list {
		found = append(found, text(element))
	}
	return found
}
