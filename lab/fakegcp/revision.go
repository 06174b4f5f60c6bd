package fakegcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A workload is the kind of resource that a revision belongs to. Each kind has its own rules.
type workload int

const (
	serviceWorkload workload = iota
	workersWorkload
	jobWorkload
)

// reserved are the environment variables that only Cloud Run may set.
// https://cloud.google.com/run/docs/configuring/services/environment-variables#reserved
var reserved = []string{"PORT", "K_SERVICE", "K_REVISION", "K_CONFIGURATION", "CLOUD_RUN_JOB", "CLOUD_RUN_EXECUTION"}

// The documented bounds of a service.
const (
	maxConcurrency = 1000
	maxTimeout     = time.Hour
	leastMemory    = 512 << 20
)

// checkRevision returns the reason why a revision cannot be created, or cannot
// start.
func (s *Server) checkRevision(body fields, of workload) error {
	revision := revisionOf(body)
	account := text(revision["serviceAccount"])
	if s.resources[s.accountKey(account)] == nil {
		return denied("template.service_account: Permission 'iam.serviceaccounts.actAs' denied on %q (or it may not exist).", account)
	}
	containers := objects(revision["containers"])
	if len(containers) == 0 {
		return invalid("template.containers", "there is none")
	}
	for i, container := range containers {
		if err := s.checkContainer(fmt.Sprintf("template.containers[%d]", i), container, account, of); err != nil {
			return err
		}
	}
	if err := checkOrder(containers); err != nil {
		return err
	}
	for _, volume := range objects(revision["volumes"]) {
		instances := texts(object(volume, "cloudSqlInstance")["instances"])
		if len(instances) > 0 && !s.granted(projectsAPI, "projects/"+s.options.Project, "roles/cloudsql.client", "serviceAccount:"+account) {
			return precondition("template.volumes: %s may not connect to %s: it lacks roles/cloudsql.client", account, instances[0])
		}
	}
	if of != serviceWorkload {
		return nil
	}
	if err := checkScaling("scaling", object(body, "scaling")); err != nil {
		return err
	}
	return checkService(revision)
}

// checkOrder checks that each name in a container's dependsOn is the name of a container. If there
// are several containers, each must have its own name.
func checkOrder(containers []fields) error {
	var names []string
	for i, container := range containers {
		name := text(container["name"])
		if len(containers) > 1 && (name == "" || slices.Contains(names, name)) {
			return invalid(fmt.Sprintf("template.containers[%d].name", i), "%q: each of several containers has a name of its own", name)
		}
		names = append(names, name)
	}
	for i, container := range containers {
		for _, other := range texts(container["dependsOn"]) {
			if !slices.Contains(names, other) {
				return invalid(fmt.Sprintf("template.containers[%d].depends_on", i), "no container %q", other)
			}
		}
	}
	return nil
}

func (s *Server) checkContainer(at string, container fields, account string, of workload) error {
	if text(container["image"]) == "" {
		return invalid(at+".image", "is missing")
	}
	if err := checkReserved(at, container); err != nil {
		return err
	}
	if of != serviceWorkload { // a service checks its secrets when it starts
		if err := s.checkSecrets(at, container, account); err != nil {
			return err
		}
	}
	return checkProbes(at, container)
}

func checkScaling(at string, scaling fields) error {
	if low, high := number(scaling["minInstanceCount"]), number(scaling["maxInstanceCount"]); high != 0 && low > high {
		return invalid(at, "min_instance_count %v is above max_instance_count %v", low, high)
	}
	return nil
}

func checkReserved(at string, container fields) error {
	for _, variable := range objects(container["env"]) {
		if name := text(variable["name"]); slices.Contains(reserved, name) {
			return invalid(at+".env", "%s is reserved", name)
		}
	}
	return nil
}

func (s *Server) checkSecrets(at string, container fields, account string) error {
	for _, variable := range objects(container["env"]) {
		name := text(variable["name"])
		reference := object(variable, "valueSource", "secretKeyRef")
		if reference == nil {
			continue
		}
		version := s.versionName(reference)
		secret, _, _ := strings.Cut(version, "/versions/")
		if !s.granted(secretsAPI, secret, "roles/secretmanager.secretAccessor", "serviceAccount:"+account) {
			return precondition("%s.env: %s: Permission denied on secret: %s for Revision service account %s.", at, name, version, account)
		}
		if _, err := s.version(version); err != nil {
			return precondition("%s.env: %s: Secret %s was not found: %v", at, name, version, err)
		}
	}
	return nil
}

func checkProbes(at string, container fields) error {
	for _, name := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
		probe, period := object(container, name), 10.0
		if given := number(probe["periodSeconds"]); given != 0 {
			period = given
		}
		if timeout := number(probe["timeoutSeconds"]); timeout > period {
			return invalid(at+"."+name+".timeout_seconds", "%v is longer than period_seconds, %v", timeout, period)
		}
	}
	return nil
}

// checkService checks the rules that apply to services only.
func checkService(revision fields) error {
	if err := checkScaling("template.scaling", object(revision, "scaling")); err != nil {
		return err
	}
	if n := number(revision["maxInstanceRequestConcurrency"]); n < 0 || n > maxConcurrency {
		return invalid("template.max_instance_request_concurrency", "%v is not between 1 and %d", n, maxConcurrency)
	}
	if timeout := text(revision["timeout"]); timeout != "" {
		if d, err := time.ParseDuration(timeout); err != nil || d <= 0 || d > maxTimeout {
			return invalid("template.timeout", "%s is not between 1s and 3600s", timeout)
		}
	}
	ports := 0
	for i, container := range objects(revision["containers"]) {
		at := fmt.Sprintf("template.containers[%d]", i)
		ports += len(objects(container["ports"]))
		if err := checkPorts(at, container); err != nil {
			return err
		}
		if err := checkResources(at, container); err != nil {
			return err
		}
	}
	if ports > 1 {
		return invalid("template.containers", "only one may have a port, and only one port")
	}
	return nil
}

func checkPorts(at string, container fields) error {
	for _, port := range objects(container["ports"]) {
		if name := text(port["name"]); name != "" && name != "http1" && name != "h2c" {
			return invalid(at+".ports.name", "%q is neither http1 nor h2c", name)
		}
	}
	return nil
}

// checkResources returns an error if the CPU of a container is always allocated and a limit is too
// low. The CPU limit must be at least 1, and the memory limit at least 512Mi. The CPU is always
// allocated if the container has resources and their cpuIdle is not true.
// https://cloud.google.com/run/docs/configuring/billing-settings
func checkResources(at string, container fields) error {
	resources := object(container, "resources")
	if idle, _ := resources["cpuIdle"].(bool); resources == nil || idle {
		return nil
	}
	limits := object(resources, "limits")
	if limit := text(limits["cpu"]); limit != "" && quantity(limit) < 1 {
		return invalid(at+".resources.limits.cpu", "%s: at least 1 where CPU is always allocated", limit)
	}
	if limit := text(limits["memory"]); limit != "" && quantity(limit) < leastMemory {
		return invalid(at+".resources.limits.memory", "%s: at least 512Mi where CPU is always allocated", limit)
	}
	return nil
}

// quantity parses a number with a unit, such as 1, 500m or 512Mi. It returns 0 if it cannot parse
// text.
func quantity(text string) float64 {
	scale := 1.0
	for suffix, factor := range map[string]float64{"m": 0.001, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "M": 1e6, "G": 1e9} {
		if rest, cut := strings.CutSuffix(text, suffix); cut {
			text, scale = rest, factor
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return n * scale
}
