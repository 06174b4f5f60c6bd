package fakegcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/lab/fakegcp"
)

// TestRevisionsThatCouldNotStart breaks one thing at a time in a service that
// is accepted otherwise.
func TestRevisionsThatCouldNotStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	email := f.account(t, "video-service")
	f.secret(t, "url", "postgres://", "serviceAccount:"+email)
	container := func(r object) object { return r["containers"].([]object)[0] }
	for says, spoil := range map[string]func(service, r object){
		"no-one@":                   func(_, r object) { r["serviceAccount"] = "no-one@" + projectID + ".iam.gserviceaccount.com" },
		"containers: there is none": func(_, r object) { r["containers"] = []object{} },
		"image":                     func(_, r object) { delete(container(r), "image") },
		"a name of its own":         func(_, r object) { r["containers"] = append(r["containers"].([]object), object{"image": "more"}) },
		"no container": func(_, r object) {
			container(r)["name"] = "first"
			r["containers"] = append(r["containers"].([]object), object{"image": "more", "name": "second", "dependsOn": []string{"third"}})
		},
		"PORT is reserved":      func(_, r object) { container(r)["env"] = []object{{"name": "PORT", "value": "8080"}} },
		"neither http1 nor h2c": func(_, r object) { container(r)["ports"] = []object{{"name": "grpc", "containerPort": 8080}} },
		"only one may have a port": func(_, r object) {
			container(r)["ports"] = []object{{"containerPort": 8080}, {"containerPort": 8081}}
		},
		"limits.cpu":          func(_, r object) { container(r)["resources"] = object{"limits": object{"cpu": "500m"}} },
		"limits.memory":       func(_, r object) { container(r)["resources"] = object{"limits": object{"memory": "256Mi"}} },
		"request_concurrency": func(_, r object) { r["maxInstanceRequestConcurrency"] = 1001 },
		"template.timeout":    func(_, r object) { r["timeout"] = "3601s" },
		"template.scaling":    func(_, r object) { r["scaling"] = object{"minInstanceCount": 3, "maxInstanceCount": 2} },
		"scaling: min":        func(s, _ object) { s["scaling"] = object{"minInstanceCount": 3, "maxInstanceCount": 2} },
		"startupProbe.timeout": func(_, r object) {
			container(r)["startupProbe"] = object{"periodSeconds": 1, "timeoutSeconds": 2}
		},
		"roles/cloudsql.client": func(_, r object) {
			r["volumes"] = []object{{"cloudSqlInstance": object{"instances": []string{"a:b:c"}}}}
		},
	} {
		template := revision(email, "url")
		service := object{"template": template}
		spoil(service, template)
		f.refused(t, refusedAs(says), says, "POST /run/v2/"+region+"/services?serviceId=video", service)
	}
	idle := revision(email, "url")
	container(idle)["resources"] = object{"limits": object{"cpu": "500m", "memory": "256Mi"}, "cpuIdle": true}
	f.do(t, 200, "POST /run/v2/"+region+"/services?serviceId=idle", object{"template": idle})
}

func refusedAs(says string) int {
	if says == "no-one@" {
		return 403
	}
	return 400
}

// TestServiceUpdate checks the fields that Terraform reads back.
func TestServiceUpdate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	email := f.account(t, "video-service")
	f.secret(t, "url", "postgres://", "serviceAccount:"+email)
	const name = region + "/services/video"
	operation := f.do(t, 200, "POST /run/v2/"+region+"/services?serviceId=video", object{"template": revision(email, "url")})
	if operation["done"] != true || operation["response"].(object)["name"] != name {
		t.Errorf("operation = %v, want it over, with the service", operation)
	}
	first := f.do(t, 200, "GET /run/v2/"+name, nil)
	other := revision(email, "url")
	other["timeout"] = "10s"
	f.do(t, 200, "PATCH /run/v2/"+name, object{"template": other, "ingress": "INGRESS_TRAFFIC_INTERNAL_ONLY"})
	second := f.do(t, 200, "GET /run/v2/"+name, nil)
	got := map[string][2]any{}
	for _, field := range []string{"uri", "ingress", "generation", "latestReadyRevision"} {
		got[field] = [2]any{first[field], second[field]}
	}
	want := map[string][2]any{
		"uri":                 {"https://video-123456789012.europe-west1.run.app", "https://video-123456789012.europe-west1.run.app"},
		"ingress":             {"INGRESS_TRAFFIC_ALL", "INGRESS_TRAFFIC_INTERNAL_ONLY"},
		"generation":          {"1", "2"},
		"latestReadyRevision": {name + "/revisions/video-00001", name + "/revisions/video-00002"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("before and after the update (-want +got):\n%s", diff)
	}
	if first["uid"] != second["uid"] || first["etag"] == second["etag"] {
		t.Errorf("uid %v → %v, etag %v → %v", first["uid"], second["uid"], first["etag"], second["etag"])
	}
	if err := f.AddSecretVersion(parent+"/secrets/url", "postgres://new"); err != nil {
		t.Fatal(err)
	}
	container, err := f.Container(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fakegcp.Container{
		Image: "registry/video@sha256:00", Command: []string{}, Args: []string{"serve"}, ServiceAccount: email,
		Environment: map[string]string{"LOG_LEVEL": "info", "DATABASE_URL": "postgres://new"},
	}, container); diff != "" {
		t.Errorf("container (-want +got):\n%s", diff)
	}
}

const services = "/run/v2/" + region + "/services"

// changeVideo creates or changes the service video. failure is the error of the
// change, if any, and service is the service after it.
func (f fixture) changeVideo(t *testing.T, line, email, secret, timeout string) (failure string, service object) {
	t.Helper()
	template := revision(email, secret)
	template["timeout"] = timeout
	failed, _ := f.do(t, 200, line, object{"template": template})["error"].(object)
	failure, _ = failed["message"].(string)
	return failure, f.do(t, 200, "GET "+services+"/video", nil)
}

func ready(service object) any { return service["latestReadyRevision"] }

func TestAServiceDoesNotStartWithoutItsSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	email := f.account(t, "video-service")
	f.secret(t, "empty", "", "serviceAccount:"+email)
	f.secret(t, "foreign", "postgres://", "")
	for secret, says := range map[string]string{"empty": "secrets/empty/versions/latest", "foreign": "Permission denied on secret"} {
		failure, service := f.changeVideo(t, "POST "+services+"?serviceId=video", email, secret, "1s")
		if !strings.Contains(failure, "video-00001' is not ready") || !strings.Contains(failure, says) || ready(service) != nil {
			t.Errorf("%s: %q, ready %v, want a service that is not: %q", secret, failure, ready(service), says)
		}
		f.do(t, 200, "DELETE "+services+"/video", nil)
	}
}

// TestAServiceThatDoesNotStart: the change fails, and the service exists.
func TestAServiceThatDoesNotStart(t *testing.T) {
	t.Parallel()
	var broken error
	f := newFixture(t, fakegcp.Options{Start: func(context.Context, string) error { return broken }})
	email := f.account(t, "video-service")
	f.secret(t, "url", "postgres://", "serviceAccount:"+email)
	change := func(line, timeout string) (string, object) { return f.changeVideo(t, line, email, "url", timeout) }
	if failure, service := change("POST "+services+"?serviceId=video", "1s"); failure != "" || ready(service) == nil {
		t.Fatalf("a service that is right: %q, %v", failure, service)
	}
	broken = errors.New("the startup probe failed")
	for _, want := range []string{broken.Error(), ""} { // the second time there is nothing to start
		failure, service := change("PATCH "+services+"/video", "2s")
		condition := service["terminalCondition"].(object)["state"]
		if condition != "CONDITION_FAILED" || (want == "") != (failure == "") || !strings.HasSuffix(failure, want) || !strings.HasSuffix(ready(service).(string), "video-00001") {
			t.Errorf("a change: %q, %v, ready %v, want %q and the revision before", failure, condition, ready(service), want)
		}
	}
	broken = nil
	if failure, service := change("PATCH "+services+"/video", "3s"); failure != "" || !strings.HasSuffix(ready(service).(string), "video-00004") {
		t.Errorf("another template: %q, ready %v, want the fourth generation", failure, ready(service))
	}
}

// TestJobsRun checks which changes run a job, and that a change fails with its
// execution.
func TestJobsRun(t *testing.T) {
	t.Parallel()
	var ran []string
	var failure error
	f := newFixture(t, fakegcp.Options{Execute: func(_ context.Context, e fakegcp.Execution) error {
		ran = append(ran, e.Name[len(e.Job+"/executions/"):]+" "+e.Container.Environment["DATABASE_URL"])
		return failure
	}})
	email := f.account(t, "video-migrate")
	f.secret(t, "url", "postgres://", "serviceAccount:"+email)
	const jobs = "/run/v2/" + region + "/jobs"
	job := object{"template": object{"template": revision(email, "url")}}
	f.do(t, 200, "POST "+jobs+"?jobId=quiet", job)
	job["runExecutionToken"] = "one"
	f.do(t, 200, "POST "+jobs+"?jobId=migrate", job)
	f.do(t, 200, "PATCH "+jobs+"/migrate", job) // the same token: no second run
	failure = errors.New("no such column")
	job["runExecutionToken"] = "two"
	operation := f.do(t, 200, "PATCH "+jobs+"/migrate", job)
	if failed, _ := operation["error"].(object); failed["message"] != "execution migrate-two failed: no such column" {
		t.Errorf("operation = %v, want the execution's failure", operation)
	}
	failure = nil
	f.do(t, 200, "POST "+jobs+"/migrate:run", nil)
	if token := f.do(t, 200, "GET "+jobs+"/migrate", nil)["runExecutionToken"]; token != nil {
		t.Errorf("after a run by hand, the token is %v, want it gone", token)
	}
	f.do(t, 200, "PATCH "+jobs+"/migrate", job) // the token of an existing execution: no second run
	if diff := cmp.Diff([]string{"migrate-one postgres://", "migrate-two postgres://"}, ran[:2]); diff != "" || len(ran) != 3 {
		t.Errorf("%d executions, the first two (-want +got):\n%s", len(ran), diff)
	}
	if list, _ := f.do(t, 200, "GET "+jobs+"/migrate/executions", nil)["executions"].([]any); len(list) != 3 {
		t.Errorf("executions = %v, want 3", list)
	}
	if count := f.do(t, 200, "GET "+jobs+"/migrate", nil)["executionCount"]; count != 3.0 {
		t.Errorf("executionCount = %v, want 3", count)
	}
}
