package localpubsub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/localpubsub"
)

const (
	// tfPlugins names the directory with the provider that `make tf-provider` builds.
	tfPlugins = "LOCKSTEP_TF_PLUGINS"
	// tfTime bounds one run of Terraform, which takes seconds on an idle
	// machine.
	tfTime = 2 * time.Minute
	// resources is the number of resources in testdata/terraform;
	// changedInPlace is the number of them that changed.tfvars changes.
	resources, changedInPlace = 9, 3
)

// TestTerraform creates, changes and destroys the resources of
// testdata/terraform with Google's own provider, which connects only to the
// server.
func TestTerraform(t *testing.T) {
	t.Parallel()
	w := newWorld(t, localpubsub.Options{})
	conn := w.conn
	tf := newTerraform(t, "http://"+w.Addr())
	const changed = "-var-file=changed.tfvars"

	tf.apply(t, "apply", summary{Add: resources})
	tf.unchanged(t)
	checkSubscription(t, conn, &pubsubpb.Subscription{
		AckDeadlineSeconds: 60, Labels: map[string]string{"team": "video", "stage": "test", "goog-terraform-provisioned": "true"},
		RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(10 * time.Second), MaximumBackoff: durationpb.New(10 * time.Minute)},
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: "projects/test/topics/events.worker.dlq", MaxDeliveryAttempts: 5},
	})
	checkMembers(t, conn)

	tf.apply(t, "apply", summary{Change: changedInPlace}, changed)
	tf.unchanged(t, changed)
	checkSubscription(t, conn, &pubsubpb.Subscription{
		AckDeadlineSeconds: 120, Labels: map[string]string{"team": "catalog", "goog-terraform-provisioned": "true"},
		RetryPolicy:      &pubsubpb.RetryPolicy{MinimumBackoff: durationpb.New(20 * time.Second), MaximumBackoff: durationpb.New(10 * time.Minute)},
		DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{DeadLetterTopic: "projects/test/topics/events.worker.dlq", MaxDeliveryAttempts: 10},
	})
	checkRevisions(t, conn, 2)

	drift(t, conn)
	if code, output := tf.run(t, "plan", "-detailed-exitcode", changed); code != 2 || !strings.Contains(output, "~ ack_deadline_seconds") {
		t.Errorf("plan after a change behind its back: exit code %d, want 2 and a changed ack_deadline_seconds:\n%s", code, output)
	}

	tf.apply(t, "destroy", summary{Remove: resources}, changed)
	checkEmpty(t, conn)
}

// A terraform runs commands in a directory of its own.
type terraform struct {
	dir         string
	environment []string
}

// newTerraform makes the provider use the Pub/Sub at base. A proxy on a closed
// port stops all other requests from leaving the machine; loopback is never
// sent to a proxy.
func newTerraform(t *testing.T, base string) terraform {
	t.Helper()
	if testing.Short() {
		t.Skip("Terraform takes half a minute")
	}
	plugins := os.Getenv(tfPlugins)
	if _, err := os.Stat(filepath.Join(plugins, "terraform-provider-google")); err != nil {
		t.Skipf("%s=%q is no directory with Terraform's google provider: `make tf-provider` builds one (minutes)", tfPlugins, plugins)
	}
	if _, err := exec.LookPath("terraform"); err != nil {
		t.Skipf("Terraform is not installed: %v", err)
	}
	dir, home := t.TempDir(), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/terraform")); err != nil {
		t.Fatal(err)
	}
	// An override needs no registry, no `init` and no lock file.
	config := filepath.Join(home, "terraform.tfrc")
	override := fmt.Sprintf("disable_checkpoint = true\nprovider_installation {\n  dev_overrides {\n    \"hashicorp/google\" = %q\n  }\n}\n", plugins)
	if err := os.WriteFile(config, []byte(override), 0o600); err != nil {
		t.Fatal(err)
	}
	return terraform{dir: dir, environment: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TF_CLI_CONFIG_FILE=" + config, "TF_IN_AUTOMATION=1",
		"GOOGLE_OAUTH_ACCESS_TOKEN=test", "USER_PROJECT_OVERRIDE=false", "HTTPS_PROXY=http://127.0.0.1:9",
		"GOOGLE_PUBSUB_CUSTOM_ENDPOINT=" + base + "/v1/",
	}}
}

// summary counts the resources that a run changed.
type summary struct {
	Add    int `json:"add"`
	Change int `json:"change"`
	Remove int `json:"remove"`
}

func (tf terraform) apply(t *testing.T, command string, want summary, args ...string) {
	t.Helper()
	code, output := tf.run(t, command, append([]string{"-auto-approve", "-json"}, args...)...)
	if code != 0 {
		t.Fatalf("%s: exit code %d:\n%s", command, code, output)
	}
	var got summary
	for line := range strings.Lines(output) {
		var message struct {
			Type    string  `json:"type"`
			Changes summary `json:"changes"`
		}
		// Lines that are not JSON are warnings.
		if err := json.Unmarshal([]byte(line), &message); err == nil && message.Type == "change_summary" {
			got = message.Changes // the last one belongs to the apply, not to its plan
		}
	}
	if got != want {
		t.Errorf("%s changed %+v, want %+v:\n%s", command, got, want, output)
	}
}

func (tf terraform) unchanged(t *testing.T, args ...string) {
	t.Helper()
	if code, output := tf.run(t, "plan", append([]string{"-detailed-exitcode"}, args...)...); code != 0 {
		t.Errorf("plan after apply: exit code %d, want 0 for no changes:\n%s", code, output)
	}
}

func (tf terraform) run(t *testing.T, command string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tfTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", append([]string{command, "-no-color", "-input=false"}, args...)...)
	cmd.Dir, cmd.Env = tf.dir, tf.environment
	// Terraform stops its providers on an interrupt; a kill would leave them
	// running.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	combined, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("terraform %s: %v", command, err)
	}
	return cmd.ProcessState.ExitCode(), string(combined)
}

const worker = "projects/test/subscriptions/events.worker"

// checkSubscription compares the server's subscription with want and with the
// settings that never change.
func checkSubscription(t *testing.T, conn grpc.ClientConnInterface, want *pubsubpb.Subscription) {
	t.Helper()
	got, err := pubsubpb.NewSubscriberClient(conn).GetSubscription(t.Context(), &pubsubpb.GetSubscriptionRequest{Subscription: worker})
	if err != nil {
		t.Fatal(err)
	}
	want.Name, want.Topic = worker, "projects/test/topics/events"
	want.EnableMessageOrdering, want.EnableExactlyOnceDelivery, want.RetainAckedMessages = true, true, true
	want.MessageRetentionDuration = durationpb.New(7 * 24 * time.Hour)
	want.ExpirationPolicy = &pubsubpb.ExpirationPolicy{}
	want.Filter = `attributes.kind = "a" AND NOT hasPrefix(attributes.tenant, "x")`
	// Fields that the service adds.
	ignored := protocmp.IgnoreFields(got, "state", "push_config", "topic_message_retention_duration")
	if diff := cmp.Diff(want, got, protocmp.Transform(), ignored); diff != "" {
		t.Errorf("subscription (-want +got):\n%s", diff)
	}
}

func checkMembers(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	const worker = "serviceAccount:worker@test.iam.gserviceaccount.com"
	for resource, want := range map[string]map[string]string{
		"projects/test/topics/events": {
			"roles/pubsub.publisher": "serviceAccount:video@test.iam.gserviceaccount.com", "roles/pubsub.viewer": "group:readers@example.com",
		},
		"projects/test/subscriptions/events.worker": {"roles/pubsub.subscriber": worker},
		"projects/test/schemas/event":               {"roles/pubsub.viewer": worker},
	} {
		policy, err := iampb.NewIAMPolicyClient(conn).GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: resource})
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, binding := range policy.GetBindings() {
			got[binding.GetRole()] = strings.Join(binding.GetMembers(), " ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("members on %s (-want +got):\n%s", resource, diff)
		}
	}
}

func checkRevisions(t *testing.T, conn grpc.ClientConnInterface, want int) {
	t.Helper()
	list, err := pubsubpb.NewSchemaServiceClient(conn).ListSchemaRevisions(t.Context(), &pubsubpb.ListSchemaRevisionsRequest{Name: "projects/test/schemas/event"})
	if err != nil || len(list.GetSchemas()) != want {
		t.Errorf("revisions = %v, %v, want %d", list.GetSchemas(), err, want)
	}
}

func drift(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	_, err := pubsubpb.NewSubscriberClient(conn).UpdateSubscription(t.Context(), &pubsubpb.UpdateSubscriptionRequest{
		Subscription: &pubsubpb.Subscription{Name: worker, AckDeadlineSeconds: 33},
		UpdateMask:   &fieldmaskpb.FieldMask{Paths: []string{"ack_deadline_seconds"}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func checkEmpty(t *testing.T, conn grpc.ClientConnInterface) {
	t.Helper()
	const project = "projects/test"
	topics, err := pubsubpb.NewPublisherClient(conn).ListTopics(t.Context(), &pubsubpb.ListTopicsRequest{Project: project})
	if err != nil || len(topics.GetTopics()) != 0 {
		t.Errorf("topics after destroy = %v, %v", topics, err)
	}
	subscriptions, err := pubsubpb.NewSubscriberClient(conn).ListSubscriptions(t.Context(), &pubsubpb.ListSubscriptionsRequest{Project: project})
	if err != nil || len(subscriptions.GetSubscriptions()) != 0 {
		t.Errorf("subscriptions after destroy = %v, %v", subscriptions, err)
	}
	schemas, err := pubsubpb.NewSchemaServiceClient(conn).ListSchemas(t.Context(), &pubsubpb.ListSchemasRequest{Parent: project})
	if err != nil || len(schemas.GetSchemas()) != 0 {
		t.Errorf("schemas after destroy = %v, %v", schemas, err)
	}
	_, err = iampb.NewIAMPolicyClient(conn).GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: worker})
	if status.Code(err) != codes.NotFound {
		t.Errorf("the policy of a destroyed subscription: %v, want NOT_FOUND", err)
	}
}
