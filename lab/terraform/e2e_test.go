package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/local/broker"
	"example.com/lockstep/internal/topics"
	"example.com/lockstep/lab/fakegcp"
)

// TestE2E runs `make tf-e2e` if Terraform and the provider are installed
// already.
func TestE2E(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes minutes")
	}
	if _, err := present(); errors.Is(err, errMissing) {
		t.Skip(err)
	}
	if err := e2e(t.Context(), nil, t.Output()); err != nil {
		t.Error(err)
	}
}

// TestRequestsCompare shows that the comparison finds changes and ignores their
// order.
func TestRequestsCompare(t *testing.T) {
	t.Parallel()
	request := func(path, token string, env ...any) fakegcp.Request {
		return fakegcp.Request{API: "run", Method: "POST", Path: path, Body: map[string]any{"runExecutionToken": token, "template": map[string]any{"env": env}}}
	}
	a, b := map[string]any{"name": "A", "value": "1"}, map[string]any{"name": "B", "value": "2"}
	want, err := requestFiles([]fakegcp.Request{request("jobs", "x", a, b), request("services", "y"), request("services:setIamPolicy", "")})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		requests []fakegcp.Request
		same     bool
	}{
		"another order and token": {[]fakegcp.Request{request("services", "z"), request("jobs", "q", b, a)}, true},
		"a variable less":         {[]fakegcp.Request{request("services", "z"), request("jobs", "q", a)}, false},
		"a request less":          {[]fakegcp.Request{request("jobs", "q", a, b)}, false},
		"a request besides":       {[]fakegcp.Request{request("services", "z"), request("jobs", "q", b, a), request("more", "q")}, false},
		"another's requests":      {[]fakegcp.Request{{API: "pubsub"}}, false},
	} {
		got, err := requestFiles(test.requests)
		if err != nil || (len(got) == len(want) && got["run.json"] == want["run.json"]) != test.same {
			t.Errorf("%s: same = %v, want %v; %v, %s", name, !test.same, test.same, err, got["run.json"])
		}
	}
}

func TestGrantsOfPolicies(t *testing.T) {
	t.Parallel()
	account := "serviceAccount:video-service@" + projectID + ".iam.gserviceaccount.com"
	listed := asListed([]fakegcp.Grant{
		{Member: account, Role: "roles/r", Resource: "pubsub/projects/p/topics/t"},
		{Member: account, Role: "roles/r", Resource: "iam/projects/p/serviceAccounts/catalog@p.iam.gserviceaccount.com"},
		{Member: "allUsers", Role: "roles/r", Resource: "cloudresourcemanager/projects/p", Condition: "x"},
		{Member: "allUsers", Role: "roles/r", Resource: "storage/buckets/b"},
	})
	want := "allUsers  roles/r  project p if x|allUsers  roles/r  storage/buckets/b|" +
		"video-service  roles/r  pubsub topic t|video-service  roles/r  service account catalog"
	if got := strings.Join(listed, "|"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestResourcesCompare changes one thing at a time in one of two equal
// projects.
func TestResourcesCompare(t *testing.T) {
	t.Parallel()
	projects := func(change func(map[string]proto.Message)) (applied, local map[string]proto.Message) {
		applied, local = map[string]proto.Message{}, map[string]proto.Message{}
		topics, subscriptions := broker.Topology()
		for _, id := range topics {
			applied["/topics/"+id] = &pubsubpb.Topic{
				Name: id, Labels: map[string]string{"a": "b"}, MessageStoragePolicy: &pubsubpb.MessageStoragePolicy{},
			}
			local["/topics/"+id] = &pubsubpb.Topic{Name: id}
		}
		for _, s := range subscriptions {
			labelled := proto.CloneOf(s)
			labelled.Labels = map[string]string{"a": "b"}
			applied["/subscriptions/"+s.GetName()], local["/subscriptions/"+s.GetName()] = labelled, s
		}
		change(applied)
		return applied, local
	}
	id := "/subscriptions/" + topics.Subscription(topics.Video, topics.Catalog)
	for says, change := range map[string]func(map[string]proto.Message){
		"":                             func(map[string]proto.Message) {},
		"is not made by Terraform":     func(w map[string]proto.Message) { delete(w, id) },
		"/more is not made by cmd/dev": func(w map[string]proto.Message) { w["/more"] = &pubsubpb.Topic{} },
		"ack_deadline_seconds":         func(w map[string]proto.Message) { w[id].(*pubsubpb.Subscription).AckDeadlineSeconds = 61 },
		"enable_message_ordering":      func(w map[string]proto.Message) { w[id].(*pubsubpb.Subscription).EnableMessageOrdering = false },
		"max_delivery_attempts": func(w map[string]proto.Message) {
			w[id].(*pubsubpb.Subscription).DeadLetterPolicy.MaxDeliveryAttempts = 5
		},
		"message_storage_policy of a Topic does not differ": func(w map[string]proto.Message) {
			for _, m := range w {
				if topic, ok := m.(*pubsubpb.Topic); ok {
					topic.MessageStoragePolicy = nil
				}
			}
		},
	} {
		err := sameResources(projects(change))
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("sameResources = %v, want it to say %q", err, says)
		}
	}
}

func TestDataLossIsRecognised(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind, actions string
		lost          bool
	}{
		{"google_pubsub_subscription", "delete", true},
		{"google_sql_database_instance", "delete create", true},
		{"google_secret_manager_secret", "create delete", true},
		{"google_pubsub_topic", "update", false},
		{"google_cloud_run_v2_service", "delete create", false},
	} {
		c := change{Type: test.kind, Change: steps{Actions: strings.Fields(test.actions)}}
		if c.losesData() != test.lost {
			t.Errorf("%s %s: loses data = %v", test.actions, test.kind, !test.lost)
		}
	}
}

// TestEarlierVersions replaces a module by another version, and removes it.
func TestEarlierVersions(t *testing.T) {
	t.Parallel()
	if _, err := git(t.Context(), "rev-parse", "--verify", "HEAD:"+moduleDir); err != nil {
		t.Skip("no history here: ", err)
	}
	m, err := newModule("none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.remove() })
	for _, name := range []string{"more.tf", "terraform.tfstate"} {
		if err := os.WriteFile(m.path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	head, err := findEarlier(t.Context(), "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for name, become := range map[string]func() error{"HEAD": func() error { return m.replaceBy(head) }, "the present one": m.restorePresent} {
		if err := become(); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]bool{"versions.tf": true, "terraform.tfstate": true, "more.tf": false} {
			if _, err := os.Stat(m.path(file)); (err == nil) != want {
				t.Errorf("%s: %s: %v, want it there: %v", name, file, err, want)
			}
		}
	}
	if _, err := findEarlier(t.Context(), "no-such-revision"); err == nil || !strings.Contains(err.Error(), "no-such-revision") {
		t.Errorf("findEarlier of nothing: %v", err)
	}
}

// TestReadmeIsFollowed shows that e2e runs the README's steps as it finds them
// there.
func TestReadmeIsFollowed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.FromSlash(readme))
	if err != nil {
		t.Fatal(err)
	}
	if enabled := enabling.FindSubmatch(text); len(enabled) < 2 || !strings.Contains(string(enabled[1]), "run.googleapis.com") {
		t.Errorf("enabled: %q", enabled)
	}
	var found []string
	for _, target := range target.FindAllSubmatch(first.Find(text), -1) {
		found = append(found, string(target[1]))
	}
	// Including the grants that a first start needs: they must have taken
	// effect by then.
	want := []string{
		"google_artifact_registry_repository.images", "module.video.google_secret_manager_secret_iam_member.connections",
		"module.catalog.google_secret_manager_secret_iam_member.connections", "google_sql_database.main", "google_project_iam_member.sql_client",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("made first (-want +got):\n%s", diff)
	}
	if !replace.Match(text) || !deletes.Match(text) {
		t.Error("it does not say what to do about a service that does not start")
	}
}
