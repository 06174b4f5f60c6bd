package fakegcp_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/lab/fakegcp"
)

func TestPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	member := "serviceAccount:" + f.account(t, "video-service")
	f.secret(t, "a", "", "")
	const secret, topic = "/secretmanager/v1/" + parent + "/secrets/a", "/pubsub/v1/" + parent + "/topics/events"
	f.do(t, 200, "PUT "+topic, object{})
	for says, spoilt := range map[string]object{
		"roles/pubsub.publish is not known": policy("roles/pubsub.publish", member),
		"does not exist":                    policy("roles/pubsub.publisher", "serviceAccount:nobody@"+projectID+".iam.gserviceaccount.com"),
		"is not an agent of this project":   policy("roles/pubsub.publisher", "serviceAccount:service-1@gcp-sa-pubsub.iam.gserviceaccount.com"),
	} {
		f.refused(t, 400, says, "POST "+secret+":setIamPolicy", spoilt)
		f.refused(t, 400, says, "POST "+topic+":setIamPolicy", spoilt)
	}
	f.refused(t, 404, "secrets/b", "POST "+strings.TrimSuffix(secret, "a")+"b:setIamPolicy", policy("roles/secretmanager.secretAccessor", member))

	agent := "serviceAccount:service-" + projectNumber + "@gcp-sa-pubsub.iam.gserviceaccount.com"
	f.do(t, 200, "POST "+topic+":setIamPolicy", policy("roles/pubsub.publisher", agent))
	first := f.do(t, 200, "POST "+secret+":setIamPolicy", policy("roles/secretmanager.secretAccessor", member))
	stale := policy("roles/secretmanager.viewer", member)
	stale["policy"].(object)["etag"] = first["etag"]
	f.do(t, 200, "POST "+secret+":setIamPolicy", stale)
	f.refused(t, 409, "etag", "POST "+secret+":setIamPolicy", stale)
	f.do(t, 200, "POST /cloudresourcemanager/v1/"+parent+":setIamPolicy", policy("roles/cloudsql.client", member))

	const roles, own = "/iam/v1/" + parent + "/roles", parent + "/roles/own"
	role := func(permission string) object {
		return object{"roleId": "own", "role": object{"includedPermissions": []any{permission}}}
	}
	f.refused(t, 400, own, "POST "+secret+":setIamPolicy", policy(own, member))
	f.refused(t, 400, "pubsub.schemas.comit", "POST "+roles, role("pubsub.schemas.comit"))
	f.do(t, 200, "POST "+roles, role("pubsub.schemas.commit"))
	f.do(t, 200, "POST "+topic+":setIamPolicy", policy(own, agent))
	f.do(t, 200, "POST "+topic+":setIamPolicy", policy("roles/pubsub.publisher", agent))

	want := []fakegcp.Grant{
		{Member: agent, Role: "roles/pubsub.publisher", Resource: "pubsub/" + parent + "/topics/events"},
		{Member: member, Role: "roles/cloudsql.client", Resource: "cloudresourcemanager/" + parent},
		{Member: member, Role: "roles/secretmanager.viewer", Resource: "secretmanager/" + parent + "/secrets/a"},
	}
	if diff := cmp.Diff(want, f.Grants()); diff != "" {
		t.Errorf("grants (-want +got):\n%s", diff)
	}
	f.do(t, 200, "DELETE "+secret, nil)
	f.do(t, 200, "DELETE "+topic, nil)
	if diff := cmp.Diff(want[1:2], f.Grants()); diff != "" {
		t.Errorf("grants after their resources have gone (-want +got):\n%s", diff)
	}
}

// TestProjectsByNumber: services use the project's number in names, and accept
// it.
func TestProjectsByNumber(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	f.secret(t, "a", "", "")
	f.do(t, 200, "GET /secretmanager/v1/projects/"+projectNumber+"/secrets/a", nil)
	if got := f.do(t, 200, "GET /cloudresourcemanager/v1/"+parent, nil)["projectNumber"]; got != projectNumber {
		t.Errorf("projectNumber = %v", got)
	}
}
