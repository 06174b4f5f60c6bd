package fakegcp_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/lab/fakegcp"
)

// TestResourceLifecycles takes resources of most kinds through their lives.
func TestResourceLifecycles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	email := f.account(t, "video-service")
	f.secret(t, "url", "postgres://", "serviceAccount:"+email)
	f.do(t, 200, "POST /iam/v1/"+region+"/workloadIdentityPools?workloadIdentityPoolId=parent", object{})
	f.do(t, 200, "POST /sqladmin/sql/v1beta4/"+parent+"/instances", object{"name": "main", "region": "europe-west1"})
	for _, test := range []struct {
		create string // after the slash
		body   object
		name   string // full; "" means the name in the answer
		update string // "" if it cannot be updated
	}{
		{"iam/v1/" + parent + "/serviceAccounts", object{"accountId": "catalog-service"}, parent + "/serviceAccounts/catalog-service@" + projectID + ".iam.gserviceaccount.com", "PATCH"},
		{"iam/v1/" + region + "/workloadIdentityPools?workloadIdentityPoolId=ci", object{}, region + "/workloadIdentityPools/ci", "PATCH"},
		{"iam/v1/" + region + "/workloadIdentityPools/parent/providers?workloadIdentityPoolProviderId=github", object{}, region + "/workloadIdentityPools/parent/providers/github", "PATCH"},
		{"secretmanager/v1/" + parent + "/secrets?secretId=a", object{"labels": object{"a": "b"}}, parent + "/secrets/a", "PATCH"},
		{"run/v2/" + region + "/services?serviceId=video", object{"template": revision(email, "url")}, region + "/services/video", "PATCH"},
		{"run/v2/" + region + "/jobs?jobId=migrate", object{"template": object{"template": revision(email, "url")}}, region + "/jobs/migrate", "PATCH"},
		{"run/v2/" + region + "/workerPools?workerPoolId=workers", object{"template": revision(email, "url")}, region + "/workerPools/workers", "PATCH"},
		{"artifactregistry/v1/" + region + "/repositories?repository_id=images", object{"format": "DOCKER"}, region + "/repositories/images", "PATCH"},
		{"cloudscheduler/v1/" + region + "/jobs", object{"name": region + "/jobs/drain", "schedule": "* * * * *"}, region + "/jobs/drain", "PATCH"},
		{"monitoring/v3/" + parent + "/alertPolicies", object{"displayName": "a", "conditions": []object{{}}}, "", "PATCH"},
		{"monitoring/v3/" + parent + "/notificationChannels", object{"type": "email"}, "", "PATCH"},
		{"monitoring/v1/" + parent + "/dashboards", object{"displayName": "a"}, "", "PATCH"},
		{"logging/v2/" + parent + "/metrics", object{"name": "parked"}, parent + "/metrics/parked", "PUT"},
		{"sqladmin/sql/v1beta4/" + parent + "/instances/main/databases", object{"name": "lockstep"}, parent + "/instances/main/databases/lockstep", "PUT"},
		{"sqladmin/sql/v1beta4/" + parent + "/instances", object{"name": "other", "region": "europe-west1"}, parent + "/instances/other", "PUT"},
	} {
		before := f.Remaining()
		made := f.do(t, 200, "POST /"+test.create, test.body)
		if test.name == "" {
			test.name, _ = made["name"].(string)
		} else {
			f.refused(t, 409, "already exists", "POST /"+test.create, test.body)
		}
		base, _, _ := strings.Cut(test.create, "projects/")
		f.do(t, 200, "GET /"+base+test.name, nil)
		f.do(t, 200, test.update+" /"+base+test.name, test.body)
		if now := f.Remaining(); len(now) != len(before)+1 {
			t.Errorf("%s: remaining %q, before it %q", test.name, now, before)
		}
		f.do(t, 200, "DELETE /"+base+test.name, nil)
		f.refused(t, 404, "not found", "GET /"+base+test.name, nil)
		f.refused(t, 404, "not found", test.update+" /"+base+test.name, test.body)
		f.refused(t, 404, "not found", "DELETE /"+base+test.name, nil)
		if diff := cmp.Diff(before, f.Remaining()); diff != "" {
			t.Errorf("%s: remaining after its end (-want +got):\n%s", test.name, diff)
		}
	}
}

func TestAMaskLeavesTheRest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	name := parent + "/secrets/a"
	f.do(t, 200, "POST /secretmanager/v1/"+parent+"/secrets?secretId=a", object{"labels": object{"a": "1"}, "ttl": "60s", "replication": object{"automatic": object{}}})
	f.do(t, 200, "PATCH /secretmanager/v1/"+name+"?updateMask=labels,ttl", object{"labels": object{"b": "2"}, "replication": "ignored"})
	got := f.do(t, 200, "GET /secretmanager/v1/"+name, nil)
	want := object{"name": name, "labels": object{"b": "2"}, "replication": object{"automatic": object{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after the update (-want +got):\n%s", diff)
	}
}

// TestUpdateKeepsTheConnectionName: the environment of other services has its
// connection.
func TestUpdateKeepsTheConnectionName(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	const instances = "/sqladmin/sql/v1beta4/" + parent + "/instances"
	f.do(t, 200, "POST "+instances, object{"name": "main", "region": "europe-west1", "databaseVersion": "POSTGRES_17"})
	operation := f.do(t, 200, "PUT "+instances+"/main", object{"databaseVersion": "POSTGRES_18", "settings": object{"tier": "db-f1-micro"}})
	if operation["status"] != "DONE" {
		t.Errorf("operation = %v, want it over", operation)
	}
	got := f.do(t, 200, "GET "+instances+"/main", nil)
	if got["connectionName"] != projectID+":europe-west1:main" || got["databaseVersion"] != "POSTGRES_18" {
		t.Errorf("after an update: %v", got)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	const name = "/secretmanager/v1/" + parent + "/secrets/a"
	f.secret(t, "a", "first", "")
	data := base64.StdEncoding.EncodeToString([]byte("second"))
	f.refused(t, 400, "payload.data", "POST "+name+":addVersion", object{"payload": object{"data": "?"}})
	f.do(t, 200, "POST "+name+":addVersion", object{"payload": object{"data": data}})
	for version, want := range map[string]string{"1": "first", "2": "second", "latest": "second"} {
		payload, _ := f.do(t, 200, "GET "+name+"/versions/"+version+":access", nil)["payload"].(object)
		if got, _ := base64.StdEncoding.DecodeString(payload["data"].(string)); string(got) != want {
			t.Errorf("version %s has %q, want %q", version, got, want)
		}
	}
	if shown := f.do(t, 200, "GET "+name+"/versions/2", nil); len(shown) != 2 {
		t.Errorf("a version shows %v, want its name and state only", shown)
	}
	f.do(t, 200, "POST "+name+"/versions/2:disable", nil)
	f.refused(t, 400, "DISABLED", "GET "+name+"/versions/latest:access", nil)
	f.do(t, 200, "DELETE "+name, nil)
	f.refused(t, 404, "versions/1", "GET "+name+"/versions/1", nil)
}

func TestServicesHaveToBeEnabled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{Enabled: []string{}})
	for _, line := range []string{"GET /run/v2/" + region + "/services/video", "GET /pubsub/v1/" + parent + "/topics/events"} {
		f.refused(t, 403, "has not been used in project "+projectID, line, nil)
	}
	f.do(t, 200, "POST /serviceusage/v1/"+parent+"/services:batchEnable", object{"serviceIds": []string{"run.googleapis.com", "pubsub.googleapis.com"}})
	if list, _ := f.do(t, 200, "GET /serviceusage/v1/"+parent+"/services?filter=state:ENABLED", nil)["services"].([]any); len(list) != 4 {
		t.Errorf("enabled: %v, want the two and those that are always", list)
	}
	for _, line := range []string{"GET /run/v2/" + region + "/services/video", "GET /pubsub/v1/" + parent + "/topics/events"} {
		f.do(t, 404, line, nil)
	}
	f.do(t, 200, "POST /serviceusage/v1/"+parent+"/services/run.googleapis.com:disable", nil)
	f.do(t, 403, "GET /run/v2/"+region+"/services/video", nil)
}

func TestUnknownRequestsAreErrors(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	for _, line := range []string{
		"GET /compute/v1/projects/p", "POST /run/v2/" + region + "/domainmappings", "POST /secretmanager/v1/" + parent + "/secrets/a:rotate",
	} {
		f.refused(t, 501, "fakegcp: ", line, object{})
	}
	f.refused(t, 400, "body", "POST /run/v2/"+region+"/services?serviceId=a", object{"a": strings.Repeat("x", 5<<20)})
	f.refused(t, 400, "serviceId", "POST /run/v2/"+region+"/services", object{})
}

func TestRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t, fakegcp.Options{})
	f.do(t, 200, "POST /secretmanager/v1/"+parent+"/secrets?secretId=a&alt=json", object{"labels": object{"a": "1"}})
	f.do(t, 200, "GET /secretmanager/v1/"+parent+"/secrets/a", nil)
	f.do(t, 200, "POST /cloudresourcemanager/v1/"+parent+":getIamPolicy", object{})
	f.do(t, 200, "PUT /pubsub/v1/"+parent+"/topics/events", object{})
	want := []fakegcp.Request{
		{API: "secretmanager", Method: "POST", Path: parent + "/secrets", Query: map[string]string{"secretId": "a"}, Body: object{"labels": object{"a": "1"}}},
		{API: "pubsub", Method: "PUT", Path: parent + "/topics/events", Body: object{}},
	}
	if diff := cmp.Diff(want, f.Requests()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestStartNamesMissingOptions(t *testing.T) {
	t.Parallel()
	for names, options := range map[string]fakegcp.Options{
		"PubSub":             {Project: "p", Number: "1", PubSub: "localhost:8085"},
		"Project and Number": {Project: "p", PubSub: "http://localhost:8085"},
	} {
		if s, err := fakegcp.Start(options); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("Start(%+v) = %v, %v, want an error that names %s", options, s, err, names)
		}
	}
}
