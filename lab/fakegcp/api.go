package fakegcp

import (
	"slices"
	"strings"
)

const (
	pubsubAPI   = "pubsub"
	servicesAPI = "serviceusage"
	projectsAPI = "cloudresourcemanager"
	secretsAPI  = "secretmanager"
	runAPI      = "run"
	iamAPI      = "iam"
)

// An api is one of Google's services. This server serves it under /name/.
type api struct {
	// name is the short name of the service. A project must have enabled name.googleapis.com.
	name string
	// product is the name that Terraform's google provider uses for the service.
	product string
	// version is the API's version, if the provider expects it at the end of the service's address. It is empty
	// if the provider adds the version itself.
	version string
	// prefix is the part of a path that comes before the version.
	prefix string
	kinds  []*resourceKind
}

// apis are all services. The kinds of a service are matched in the given order.
var apis = []*api{
	{name: projectsAPI, product: "RESOURCE_MANAGER", version: "v1", kinds: []*resourceKind{project}},
	{name: servicesAPI, product: "SERVICE_USAGE", version: "v1", kinds: []*resourceKind{projectService, projects}},
	{name: iamAPI, product: "IAM_BETA", version: "v1", kinds: []*resourceKind{serviceAccount, pool, poolProvider, customRole}},
	{name: pubsubAPI, product: "PUBSUB", version: "v1"},
	{name: secretsAPI, product: "SECRET_MANAGER", version: "v1", kinds: []*resourceKind{secret, secretVersion}},
	{name: runAPI, product: "CLOUD_RUN_V2", version: "v2", kinds: []*resourceKind{runService, runJob, workerPool, execution}},
	{name: "artifactregistry", product: "ARTIFACT_REGISTRY", version: "v1", kinds: []*resourceKind{repository}},
	{name: "cloudscheduler", product: "CLOUD_SCHEDULER", version: "v1", kinds: []*resourceKind{schedule}},
	{name: "monitoring", product: "MONITORING", kinds: monitored},
	{name: "logging", product: "LOGGING", version: "v2", kinds: []*resourceKind{logMetric}},
	{name: "sqladmin", product: "SQL", version: "v1beta4", prefix: "sql", kinds: []*resourceKind{databaseInstance, database, databaseUser}},
}

// service returns the name under which a project enables the service.
func (a *api) service() string { return a.name + ".googleapis.com" }

// Services returns the names of all services of the fake, for the field Enabled of [Options].
func Services() []string {
	names := make([]string, 0, len(apis))
	for _, a := range apis {
		names = append(names, a.service())
	}
	return names
}

func apiOf(path string) *api {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for _, a := range apis {
		if a.name == name {
			return a
		}
	}
	return nil
}

// Environment returns environment variables that make Terraform's google provider use only this
// server. Requests to other hosts go to a proxy on a closed port and fail. So no request leaves the
// machine. Requests to loopback addresses use no proxy.
func (s *Server) Environment() []string {
	vars := []string{"GOOGLE_OAUTH_ACCESS_TOKEN=none", "USER_PROJECT_OVERRIDE=false", "HTTPS_PROXY=http://127.0.0.1:9"}
	for _, a := range apis {
		parts := slices.DeleteFunc([]string{s.URL(), a.name, a.prefix, a.version}, func(part string) bool { return part == "" })
		vars = append(vars, "GOOGLE_"+a.product+"_CUSTOM_ENDPOINT="+strings.Join(parts, "/")+"/")
	}
	return vars
}
