package fakegcp

import (
	"fmt"
	"regexp"
	"slices"
)

// accountID matches the documented form of a service account's id.
var accountID = regexp.MustCompile(`^[a-z]([-a-z0-9]{4,28}[a-z0-9])$`)

var serviceAccount = &resourceKind{
	collection: "projects/*/serviceAccounts",
	identify: func(s *Server, c *call) (string, fields, error) {
		id := text(c.body["accountId"])
		if !accountID.MatchString(id) {
			return "", nil, invalid("accountId", "%q: 6 to 30 lower-case letters, digits and hyphens, a letter first", id)
		}
		body, _ := clone(c.body)["serviceAccount"].(fields)
		if body == nil {
			body = fields{}
		}
		email := fmt.Sprintf("%s@%s.iam.gserviceaccount.com", id, s.options.Project)
		body["email"], body["projectId"], body["uniqueId"] = email, s.options.Project, "1000"+s.next()
		return email, body, nil
	},
	wrapped: "serviceAccount",
	complete: func(_ *Server, r *resource, old fields) {
		carry(r.body, old, "email", "projectId", "uniqueId")
	},
}

var pool = &resourceKind{
	collection: "projects/*/locations/*/workloadIdentityPools", identify: fromQuery("workloadIdentityPoolId"),
	complete: active, operation: longRunning,
	actions: map[string]func(*Server, *call) (fields, error){"listAttestationRules": nothing},
}

var poolProvider = &resourceKind{
	collection: "projects/*/locations/*/workloadIdentityPools/*/providers", identify: fromQuery("workloadIdentityPoolProviderId"),
	needs: true, complete: active, operation: longRunning,
}

// active makes a pool active at once. As in Google's service, the name in the body has the
// project's number.
func active(s *Server, r *resource, _ fields) {
	r.body["state"] = "ACTIVE"
	r.body["name"] = "projects/" + s.options.Number + r.name[len("projects/"+s.options.Project):]
}

func nothing(s *Server, c *call) (fields, error) {
	_, err := s.get(c)
	return fields{}, err
}

// carry copies the named fields from old to body. Only the service sets these fields.
func carry(body, old fields, names ...string) {
	for _, name := range names {
		if value, there := old[name]; there {
			body[name] = value
		}
	}
}

// permissions are the permissions that a custom role may have here. Without an account, no other
// check finds a misspelt permission.
// https://cloud.google.com/iam/docs/roles-permissions
var permissions = []string{
	"cloudsql.databases.get", "cloudsql.instances.get", "iam.workloadIdentityPools.getAttestationRules",
	"pubsub.schemas.commit", "pubsub.schemas.get", "pubsub.schemas.validate",
}

var customRole = &resourceKind{
	collection: "projects/*/roles",
	identify: func(_ *Server, c *call) (string, fields, error) {
		body, _ := clone(c.body)["role"].(fields)
		return text(c.body["roleId"]), body, nil
	},
	check: func(_ *Server, _ *call, body fields) error {
		for _, name := range texts(body["includedPermissions"]) {
			if !slices.Contains(permissions, name) {
				return invalid("role.included_permissions", "permission %s is not known here: is it spelt right? iam.go has the list", name)
			}
		}
		return nil
	},
}
