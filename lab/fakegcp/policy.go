package fakegcp

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// roles are the roles that the fake accepts. Without an account, no other check finds a misspelt
// role. https://cloud.google.com/iam/docs/roles-permissions
var roles = []string{
	"artifactregistry.reader", "artifactregistry.writer", "artifactregistry.repoAdmin",
	"cloudscheduler.viewer", "cloudsql.client", "cloudsql.instanceUser", "cloudsql.viewer", "cloudtrace.agent",
	"iam.roleViewer", "iam.securityReviewer", "iam.serviceAccountUser", "iam.serviceAccountTokenCreator",
	"iam.serviceAccountOpenIdTokenCreator", "iam.serviceAccountViewer", "iam.workloadIdentityPoolViewer", "iam.workloadIdentityUser",
	"logging.logWriter", "monitoring.metricWriter", "monitoring.viewer",
	"pubsub.publisher", "pubsub.subscriber", "pubsub.viewer", "pubsub.editor",
	"run.admin", "run.developer", "run.invoker", "run.jobsExecutor", "run.jobsExecutorWithOverrides", "run.viewer",
	"secretmanager.secretAccessor", "secretmanager.secretVersionAdder", "secretmanager.secretVersionManager", "secretmanager.viewer",
	"telemetry.writer", "telemetry.tracesWriter", "telemetry.metricsWriter", "viewer",
}

var (
	ownAccount = regexp.MustCompile(`^serviceAccount:[^@]+@([^.]+)\.iam\.gserviceaccount\.com$`)
	agent      = regexp.MustCompile(`^serviceAccount:service-([0-9]+)@(gcp-sa-[a-z]+|serverless-robot-prod)\.iam\.gserviceaccount\.com$`)
)

// policy reads or writes a policy like the services. An etag detects a concurrent write.
func (s *Server) policy(c *call) (fields, error) {
	name := key(c.api.name, c.name)
	if c.api.name != projectsAPI && s.resources[name] == nil {
		return nil, missing(c.name)
	}
	current := s.policies[name]
	if current == nil {
		current = fields{"etag": "none", "version": 1}
	}
	if c.action == "getIamPolicy" {
		return current, nil
	}
	wanted, _ := c.body["policy"].(fields)
	if etag := text(wanted["etag"]); etag != "" && etag != current["etag"] {
		return nil, &refusal{http.StatusConflict, "ABORTED", "There were concurrent policy changes: etag"}
	}
	if err := s.checkPolicy(wanted); err != nil {
		return nil, err
	}
	wanted = clone(wanted)
	wanted["etag"] = "etag-" + s.next()
	s.policies[name] = wanted
	return wanted, nil
}

func (s *Server) checkPolicy(policy fields) error {
	for i, binding := range objects(policy["bindings"]) {
		role := text(binding["role"])
		if !slices.Contains(roles, strings.TrimPrefix(role, "roles/")) && s.resources[key(iamAPI, role)] == nil {
			at := fmt.Sprintf("policy.bindings[%d].role", i)
			return invalid(at, "role %s is not known here: is it spelt right? policy.go has the list", role)
		}
		members, _ := binding["members"].([]any)
		for _, member := range members {
			if err := s.checkMember(text(member)); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMember refuses a service account of the project if the account does not exist. It does not
// check other kinds of members.
func (s *Server) checkMember(member string) error {
	if own := agent.FindStringSubmatch(member); own != nil {
		if own[1] != s.options.Number {
			return invalid("policy.bindings.members", "%s is not an agent of this project, whose number is %s", member, s.options.Number)
		}
		return nil
	}
	if own := ownAccount.FindStringSubmatch(member); len(own) > 1 && own[1] == s.options.Project {
		email := strings.TrimPrefix(member, "serviceAccount:")
		if s.resources[s.accountKey(email)] == nil {
			return invalid("policy.bindings.members", "Service account %s does not exist.", email)
		}
	}
	return nil
}

func (s *Server) accountKey(email string) string {
	return key(iamAPI, "projects/"+s.options.Project+"/serviceAccounts/"+email)
}

// granted reports whether a member has a role on a resource or on the project.
func (s *Server) granted(api, name, role, member string) bool {
	for _, at := range []string{key(api, name), key(projectsAPI, "projects/"+s.options.Project)} {
		for _, binding := range objects(s.policies[at]["bindings"]) {
			members, _ := binding["members"].([]any)
			if binding["role"] == role && slices.Contains(members, any(member)) {
				return true
			}
		}
	}
	return false
}

// A Grant is one member's role on one resource.
type Grant struct {
	Member, Role, Resource string
	// Condition is the expression that restricts the grant, or empty.
	Condition string
}

// Grants returns all grants, sorted. Resource is the short name of the API and then the name of the
// resource, such as pubsub/projects/p/topics/t.
func (s *Server) Grants() []Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	var grants []Grant
	for _, name := range slices.Sorted(maps.Keys(s.policies)) {
		for _, binding := range objects(s.policies[name]["bindings"]) {
			members, _ := binding["members"].([]any)
			for _, member := range members {
				grants = append(grants, Grant{
					Member: text(member), Role: text(binding["role"]), Resource: name,
					Condition: text(object(binding, "condition")["expression"]),
				})
			}
		}
	}
	slices.SortFunc(grants, func(a, b Grant) int {
		return strings.Compare(a.Member+" "+a.Resource+" "+a.Role, b.Member+" "+b.Resource+" "+b.Role)
	})
	return grants
}
