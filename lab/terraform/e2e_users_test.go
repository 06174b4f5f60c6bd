package main

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/command"
)

// Terraform's names of variables are those that the services read. Only the golden requests
// have what a service gets, so a wrong name would show in a deployment.
func TestServicesTakeTheIdentityThatTerraformGives(t *testing.T) {
	t.Parallel()
	var requests []struct {
		Path  string            `json:"path"`
		Query map[string]string `json:"query"`
		Body  struct {
			Template struct {
				Containers []struct {
					Env []struct{ Name, Value string } `json:"env"`
				} `json:"containers"`
			} `json:"template"`
		} `json:"body"`
	}
	if err := json.Unmarshal([]byte(read(t, requestsDir+"/run.json")), &requests); err != nil {
		t.Fatal(err)
	}
	video := auth.Config{
		Issuer: authIssuer, Audience: authAudience, ServiceIssuer: "https://accounts.google.com",
		ServiceAudience: "https://video-" + projectNumber + "." + region + ".run.app",
		Services: []string{
			"catalog-service@" + projectID + ".iam.gserviceaccount.com",
			"catalog-migrate@" + projectID + ".iam.gserviceaccount.com",
		},
	}
	catalog := video
	catalog.ServiceAudience, catalog.Services = "", nil
	want := map[string]auth.Config{"video": video, "video-workers": video, "catalog": catalog, "catalog-workers": catalog}
	got := map[string]auth.Config{}
	for _, r := range requests {
		name := r.Query["serviceId"] + r.Query["workerPoolId"]
		if name == "" || len(r.Body.Template.Containers) == 0 {
			continue
		}
		variables := map[string]string{}
		for _, e := range r.Body.Template.Containers[0].Env {
			variables[e.Name] = e.Value
		}
		environment := command.NewEnvironment(func(name string) string { return variables[name] })
		got[name] = auth.ReadConfig(environment)
		if err := environment.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("who may call (-want +got):\n%s", diff)
	}
}
