package resource_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"example.com/lockstep/localpubsub/internal/resource"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"projects/p/topics/abc": true, "projects/example.com:acme/topics/a-b_c.d~e+f%20": true,
		"projects/p/topics/" + strings.Repeat("a", 255): true, "projects/p/topics/" + strings.Repeat("a", 256): false,
		"projects/p/topics/ab": false, "projects/p/topics/1ab": false, "projects/p/topics/google": false,
		"projects/p/schemas/abc": false, "projects//topics/abc": false, "topics/abc": false, "projects/p/topics/abc/d": false,
	} {
		if err := resource.CheckName(name, "topics", "name"); (err == nil) != valid {
			t.Errorf("%s: %v, want valid: %t", name, err, valid)
		}
	}
	made := resource.RandomName("projects/p/topics/abc", "subscriptions")
	if err := resource.CheckName(made, "subscriptions", "name"); err != nil {
		t.Error(err)
	}
}

// TestPages reads a list by its tokens, also if the name at the end of the
// first page is removed meanwhile.
func TestPages(t *testing.T) {
	t.Parallel()
	req := &pubsubpb.ListTopicsRequest{PageSize: 2}
	first, next, err := resource.Page([]string{"d", "b", "a", "c"}, req)
	if err != nil || !slices.Equal(first, []string{"a", "b"}) || next == "" {
		t.Fatalf("first page %q, token %q, %v", first, next, err)
	}
	req.PageToken = next
	for _, left := range [][]string{{"d", "c", "b", "a"}, {"d", "c", "a"}} {
		second, next, err := resource.Page(left, req)
		if err != nil || !slices.Equal(second, []string{"c", "d"}) || next != "" {
			t.Errorf("second page of %q: %q, token %q, %v", left, second, next, err)
		}
	}
	for field, refused := range map[string]*pubsubpb.ListTopicsRequest{
		"page_size": {PageSize: -1}, "page_token": {PageToken: "!"},
	} {
		if _, _, err := resource.Page(nil, refused); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: %v, want INVALID_ARGUMENT that names %s", refused, err, field)
		}
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	had := &pubsubpb.Topic{Name: "n", KmsKeyName: "k", Labels: map[string]string{"a": "1"}}
	asked := &pubsubpb.Topic{Name: "other", Labels: map[string]string{"b": "2"}, SchemaSettings: &pubsubpb.SchemaSettings{Schema: "s", FirstRevisionId: "r"}}
	mask := &fieldmaskpb.FieldMask{Paths: []string{"labels", "kms_key_name", "schema_settings.schema"}}
	if err := resource.ApplyMask(had, asked, mask, resource.TopicFields); err != nil {
		t.Fatal(err)
	}
	want := &pubsubpb.Topic{Name: "n", Labels: map[string]string{"b": "2"}, SchemaSettings: &pubsubpb.SchemaSettings{Schema: "s"}}
	if diff := cmp.Diff(want, had, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	had.Labels["b"] = "3"
	if asked.GetLabels()["b"] != "2" {
		t.Error("a label of the request changed with the topic")
	}
	for _, path := range []string{"", "name", "lables", "labels.a", "schema_settings.nothing"} {
		mask := &fieldmaskpb.FieldMask{}
		if path != "" {
			mask.Paths = []string{path}
		}
		if err := resource.ApplyMask(had, asked, mask, resource.TopicFields); status.Code(err) != codes.InvalidArgument {
			t.Errorf("mask %q: %v, want INVALID_ARGUMENT", path, err)
		}
	}
}

func TestBoundsOfASubscription(t *testing.T) {
	t.Parallel()
	seconds := func(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }
	for name, test := range map[string]struct {
		config *pubsubpb.Subscription
		valid  bool
	}{
		"shortest deadline": {&pubsubpb.Subscription{AckDeadlineSeconds: 10}, true},
		"shorter deadline":  {&pubsubpb.Subscription{AckDeadlineSeconds: 9}, false},
		"longest deadline":  {&pubsubpb.Subscription{AckDeadlineSeconds: 600}, true},
		"longer deadline":   {&pubsubpb.Subscription{AckDeadlineSeconds: 601}, false},
		"shortest kept":     {&pubsubpb.Subscription{MessageRetentionDuration: seconds(600)}, true},
		"shorter kept":      {&pubsubpb.Subscription{MessageRetentionDuration: seconds(599)}, false},
		"longest kept":      {&pubsubpb.Subscription{MessageRetentionDuration: seconds(31 * 86400)}, true},
		"longer kept":       {&pubsubpb.Subscription{MessageRetentionDuration: seconds(31*86400 + 1)}, false},
		"fewest attempts":   {&pubsubpb.Subscription{DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{MaxDeliveryAttempts: 5}}, true},
		"fewer attempts":    {&pubsubpb.Subscription{DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{MaxDeliveryAttempts: 4}}, false},
		"most attempts":     {&pubsubpb.Subscription{DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{MaxDeliveryAttempts: 100}}, true},
		"more attempts":     {&pubsubpb.Subscription{DeadLetterPolicy: &pubsubpb.DeadLetterPolicy{MaxDeliveryAttempts: 101}}, false},
		"defaults":          {&pubsubpb.Subscription{RetryPolicy: &pubsubpb.RetryPolicy{}}, true},
	} {
		test.config.Name = "projects/p/subscriptions/events"
		err := errors.Join(resource.CheckSubscription(test.config), resource.CheckDeadLetters(test.config.GetDeadLetterPolicy()))
		if (err == nil) != test.valid || err != nil && !strings.Contains(err.Error(), "InvalidArgument") {
			t.Errorf("%s: %v, want valid: %t", name, err, test.valid)
		}
		if retry := test.config.GetRetryPolicy(); retry != nil &&
			(retry.GetMinimumBackoff().GetSeconds() != 10 || retry.GetMaximumBackoff().GetSeconds() != 600) {
			t.Errorf("backoff %v, want from 10 s to 600 s", retry)
		}
	}
}
