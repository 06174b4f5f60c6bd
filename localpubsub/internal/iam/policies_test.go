package iam

import (
	"fmt"
	"strings"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/type/expr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
)

const (
	guarded = "projects/p/topics/t"
	role    = "roles/pubsub.publisher"
	alice   = "user:alice@example.com"
	bob     = "serviceAccount:bob@p.iam.gserviceaccount.com"
)

func TestPolicyReadModifyWrite(t *testing.T) {
	t.Parallel()
	p := NewPolicies(func(string) error { return nil })
	first := getPolicy(t, p, 0)
	if diff := cmp.Diff(&iampb.Policy{Etag: unsetETag}, first, protocmp.Transform()); diff != "" {
		t.Errorf("before a set (-want +got):\n%s", diff)
	}
	second := setPolicy(t, p, &iampb.Policy{Etag: first.GetEtag(), Bindings: []*iampb.Binding{
		{Role: role, Members: []string{alice}}, {Role: "roles/viewer"}, {Role: role, Members: []string{bob, alice}},
	}})
	want := &iampb.Policy{Version: 1, Etag: second.GetEtag(), Bindings: []*iampb.Binding{{Role: role, Members: []string{alice, bob}}}}
	if diff := cmp.Diff(want, getPolicy(t, p, 0), protocmp.Transform()); diff != "" {
		t.Errorf("after a set (-want +got):\n%s", diff)
	}
	_, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: guarded, Policy: first})
	if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "etag") {
		t.Errorf("set with an old etag: %v, want ABORTED naming the etag", err)
	}
	if diff := cmp.Diff(want, getPolicy(t, p, 0), protocmp.Transform()); diff != "" {
		t.Errorf("after a refused set (-want +got):\n%s", diff)
	}
	if third := setPolicy(t, p, &iampb.Policy{}); len(third.GetBindings()) != 0 || cmp.Equal(third.GetEtag(), second.GetEtag()) {
		t.Errorf("set without an etag = %v, want an empty policy with an etag of its own", third)
	}
	p.Remove(guarded)
	if diff := cmp.Diff(first, getPolicy(t, p, 0), protocmp.Transform()); diff != "" {
		t.Errorf("after the resource's end (-want +got):\n%s", diff)
	}
}

func TestPolicyMask(t *testing.T) {
	t.Parallel()
	p := NewPolicies(func(string) error { return nil })
	bindings := []*iampb.Binding{{Role: role, Members: []string{alice}}}
	setPolicy(t, p, &iampb.Policy{Bindings: bindings})
	_, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{
		Resource: guarded, Policy: &iampb.Policy{}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"etag"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bindings, getPolicy(t, p, 0).GetBindings(), protocmp.Transform()); diff != "" {
		t.Errorf("a mask without bindings changed them (-want +got):\n%s", diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	t.Parallel()
	p := NewPolicies(func(string) error { return nil })
	conditional := &iampb.Binding{
		Role: role, Members: []string{alice}, Condition: &expr.Expr{Title: "june", Expression: `request.time < timestamp("2027-07-01T00:00:00Z")`},
	}
	setPolicy(t, p, &iampb.Policy{Version: 3, Bindings: []*iampb.Binding{conditional}})
	if diff := cmp.Diff([]*iampb.Binding{conditional}, getPolicy(t, p, 3).GetBindings(), protocmp.Transform()); diff != "" {
		t.Errorf("version 3 (-want +got):\n%s", diff)
	}
	concealing := getPolicy(t, p, 1)
	if b := concealing.GetBindings()[0]; b.GetCondition() != nil || !strings.HasPrefix(b.GetRole(), role+"_withcond_") {
		t.Errorf("version 1 = %v, want no condition and a changed role", b)
	}
	concealed := concealing.GetBindings()
	for name, test := range map[string]struct {
		policy *iampb.Policy
		field  string
	}{
		"concealed role":               {&iampb.Policy{Version: 3, Etag: concealing.GetEtag(), Bindings: concealed}, "policy.bindings[0].role"},
		"version 1 over conditions":    {&iampb.Policy{Version: 1, Etag: concealing.GetEtag()}, "policy.version"},
		"condition without version 3":  {&iampb.Policy{Bindings: []*iampb.Binding{conditional}}, "policy.bindings[0].condition"},
		"condition without expression": {&iampb.Policy{Version: 3, Bindings: []*iampb.Binding{{Role: role, Condition: &expr.Expr{Title: "t"}}}}, "condition"},
		"version that never was":       {&iampb.Policy{Version: 2}, "policy.version"},
	} {
		_, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: guarded, Policy: test.policy})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v, want INVALID_ARGUMENT with %q", name, err, test.field)
		}
	}
}

func TestPolicyRefused(t *testing.T) {
	t.Parallel()
	members := func(n int, format string) []string {
		var m []string
		for i := range n {
			m = append(m, fmt.Sprintf(format, i))
		}
		return m
	}
	one := func(r string, members ...string) *iampb.Policy {
		return &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/viewer"}, {Role: r, Members: members}}}
	}
	p := NewPolicies(func(string) error { return nil })
	for name, test := range map[string]struct {
		policy *iampb.Policy
		mask   []string
		field  string
	}{
		"no policy":           {nil, nil, "policy:"},
		"role without prefix": {one("pubsub.publisher", alice), nil, "policy.bindings[1].role"},
		"member alone":        {one(role, alice, "alice@example.com"), nil, "policy.bindings[1].members[1]"},
		"member of no kind":   {one(role, "robot:r@example.com"), nil, "policy.bindings[1].members[0]"},
		"many principals":     {one(role, members(1501, "user:%d@x.y")...), nil, "1501 principals"},
		"many groups":         {one(role, members(251, "group:%d@x.y")...), nil, "251 of them groups"},
		"large":               {one(role, "user:"+strings.Repeat("a", 64<<10)+"@x.y"), nil, "bytes"},
		"mask of no field":    {one(role, alice), []string{"binding"}, "update_mask"},
	} {
		_, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{
			Resource: guarded, Policy: test.policy, UpdateMask: &fieldmaskpb.FieldMask{Paths: test.mask},
		})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), test.field) {
			t.Errorf("%s: %v, want INVALID_ARGUMENT with %q", name, err, test.field)
		}
	}
	setPolicy(t, p, one("organizations/1/roles/own", "allUsers", "allAuthenticatedUsers", "domain:example.com", "projectOwner:p", "group:g@x.y",
		"deleted:user:a@b.c?uid=1", "serviceAccount:p.svc.id.goog[ns/sa]", "principalSet://iam.googleapis.com/projects/1/x/*"))
	setPolicy(t, p, one(role, members(1500, "user:%d@x.y")...))
	if _, err := p.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{
		Resource: guarded, Options: &iampb.GetPolicyOptions{RequestedPolicyVersion: 2},
	}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("get version 2: %v, want INVALID_ARGUMENT", err)
	}
}

func TestPolicyOfAMissingResource(t *testing.T) {
	t.Parallel()
	missing := status.Error(codes.NotFound, "gone")
	p := NewPolicies(func(string) error { return missing })
	if _, err := p.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{Resource: guarded}); status.Code(err) != codes.NotFound {
		t.Errorf("get: %v, want NOT_FOUND", err)
	}
	request := &iampb.SetIamPolicyRequest{Resource: guarded, Policy: &iampb.Policy{}}
	if _, err := p.SetIamPolicy(t.Context(), request); status.Code(err) != codes.NotFound {
		t.Errorf("set: %v, want NOT_FOUND", err)
	}
	granted, err := p.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: guarded, Permissions: []string{"pubsub.topics.get"}})
	if err != nil || len(granted.GetPermissions()) != 0 {
		t.Errorf("test = %v, %v, want nothing granted", granted, err)
	}
}

// TestPolicyDoesNotOutliveItsResource deletes the resource in the middle of a
// set.
func TestPolicyDoesNotOutliveItsResource(t *testing.T) {
	t.Parallel()
	asked := 0
	p := NewPolicies(func(string) error {
		asked++
		if asked == 2 {
			return status.Error(codes.NotFound, "gone")
		}
		return nil
	})
	_, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: guarded, Policy: &iampb.Policy{}})
	if status.Code(err) != codes.NotFound {
		t.Errorf("set: %v, want NOT_FOUND", err)
	}
	if policy := getPolicy(t, p, 0); !cmp.Equal(policy.GetEtag(), unsetETag) {
		t.Errorf("policy = %v, want none", policy)
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	p := NewPolicies(func(string) error { return nil })
	asked := []string{"pubsub.topics.get", "pubsub.topics.publish"}
	granted, err := p.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: guarded, Permissions: asked})
	if diff := cmp.Diff(asked, granted.GetPermissions()); diff != "" || err != nil {
		t.Errorf("granted (-want +got):\n%s%v", diff, err)
	}
	for _, wildcard := range []string{"*", "pubsub.*", ""} {
		_, err := p.TestIamPermissions(t.Context(), &iampb.TestIamPermissionsRequest{Resource: guarded, Permissions: []string{wildcard}})
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v, want INVALID_ARGUMENT", wildcard, err)
		}
	}
}

func getPolicy(t *testing.T, p *Policies, version int32) *iampb.Policy {
	t.Helper()
	policy, err := p.GetIamPolicy(t.Context(), &iampb.GetIamPolicyRequest{
		Resource: guarded, Options: &iampb.GetPolicyOptions{RequestedPolicyVersion: version},
	})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func setPolicy(t *testing.T, p *Policies, policy *iampb.Policy) *iampb.Policy {
	t.Helper()
	policy, err := p.SetIamPolicy(t.Context(), &iampb.SetIamPolicyRequest{Resource: guarded, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}
