package fakegcp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/lab/fakegcp"
	"example.com/lockstep/localpubsub"
)

const (
	projectID     = "demo-project"
	projectNumber = "123456789012"
	parent        = "projects/" + projectID
	region        = parent + "/locations/europe-west1"
)

type object = map[string]any

// fixture is a fake with a Pub/Sub behind it.
type fixture struct{ *fakegcp.Server }

func newFixture(t *testing.T, options fakegcp.Options) fixture {
	t.Helper()
	pubsub, err := localpubsub.Start(localpubsub.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pubsub.Close() })
	options.Project, options.Number, options.PubSub = projectID, projectNumber, "http://"+pubsub.Addr()
	if options.Enabled == nil {
		options.Enabled = fakegcp.Services()
	}
	fake, err := fakegcp.Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fake.Close() })
	return fixture{fake}
}

// do sends one request, METHOD /path, and requires the status code.
func (f fixture) do(t *testing.T, want int, line string, body object) object {
	t.Helper()
	method, path, _ := strings.Cut(line, " ")
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if body == nil {
		raw = nil
	}
	r, err := http.NewRequestWithContext(t.Context(), method, f.URL()+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer object
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if response.StatusCode != want {
		t.Errorf("%s: %d, want %d: %v", line, response.StatusCode, want, answer)
	}
	return answer
}

// refused requires the status code and a message that names the fault.
func (f fixture) refused(t *testing.T, want int, says, line string, body object) {
	t.Helper()
	answer := f.do(t, want, line, body)
	failure, _ := answer["error"].(object)
	if message, _ := failure["message"].(string); !strings.Contains(message, says) {
		t.Errorf("%s: message %q does not say %q", line, message, says)
	}
}

// account creates a service account and returns its email.
func (f fixture) account(t *testing.T, id string) string {
	t.Helper()
	f.do(t, 200, "POST /iam/v1/"+parent+"/serviceAccounts", object{"accountId": id})
	return id + "@" + projectID + ".iam.gserviceaccount.com"
}

// secret creates a secret that member may read.
func (f fixture) secret(t *testing.T, id, value, member string) {
	t.Helper()
	name := parent + "/secrets/" + id
	f.do(t, 200, "POST /secretmanager/v1/"+parent+"/secrets?secretId="+id, object{})
	if value != "" {
		if err := f.AddSecretVersion(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if member != "" {
		f.do(t, 200, "POST /secretmanager/v1/"+name+":setIamPolicy", policy("roles/secretmanager.secretAccessor", member))
	}
}

func policy(role, member string) object {
	return object{"policy": object{"bindings": []object{{"role": role, "members": []string{member}}}}}
}

// revision returns a template that Cloud Run accepts: one variable, from a
// secret.
func revision(account, secret string) object {
	return object{
		"serviceAccount": account,
		"containers": []object{{
			"image":     "registry/video@sha256:00",
			"args":      []string{"serve"},
			"ports":     []object{{"name": "h2c", "containerPort": 8080}},
			"resources": object{"limits": object{"cpu": "1", "memory": "512Mi"}},
			"env": []object{
				{"name": "LOG_LEVEL", "value": "info"},
				{"name": "DATABASE_URL", "valueSource": object{"secretKeyRef": object{"secret": secret, "version": "latest"}}},
			},
		}},
	}
}
