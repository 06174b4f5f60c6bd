package conformance

import (
	"slices"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
)

func permissions() area {
	source := page("access-control")
	const etags = "https://cloud.google.com/iam/docs/allow-policies#etag"
	return area{"permissions", []Behaviour{
		{Name: "a topic's policy is kept and returned", Source: source, try: topicPolicyIsKept},
		{Name: "a subscription's policy is kept and returned", Source: source, try: subscriptionPolicyIsKept},
		{Name: "a new topic has an empty policy with an etag", Source: etags, try: policyStartsEmpty},
		{Name: "a policy changes its etag when it changes", Source: etags, try: policyChangesETag},
		{Name: "a policy with a stale etag is refused as aborted", Source: etags, try: policyNeedsETag},
		{Name: "the owner has the permissions that are asked for", Source: source, try: ownerHasPermissions},
	}}
}

// viewer returns a policy with one role and one member. The member may have the
// role on any resource.
func viewer() *iampb.Policy {
	return &iampb.Policy{Bindings: []*iampb.Binding{{Role: "roles/pubsub.viewer", Members: []string{"domain:google.com"}}}}
}

func (t *trial) policy(resource string) *iampb.Policy {
	policy, err := t.policies.GetIamPolicy(t.ctx, &iampb.GetIamPolicyRequest{Resource: resource})
	t.must(err)
	return policy
}

func (t *trial) setPolicy(resource string, policy *iampb.Policy) (*iampb.Policy, error) {
	return t.policies.SetIamPolicy(t.ctx, &iampb.SetIamPolicyRequest{Resource: resource, Policy: policy})
}

func (t *trial) keepsPolicy(resource string) {
	set, err := t.setPolicy(resource, viewer())
	t.must(err)
	for _, got := range []*iampb.Policy{set, t.policy(resource)} {
		equal(t, "number of bindings", len(got.GetBindings()), 1)
		equal(t, "role", got.GetBindings()[0].GetRole(), "roles/pubsub.viewer")
		t.sameSet("members", got.GetBindings()[0].GetMembers(), []string{"domain:google.com"})
	}
}

func topicPolicyIsKept(t *trial)        { t.keepsPolicy(t.topic()) }
func subscriptionPolicyIsKept(t *trial) { t.keepsPolicy(t.subscription(t.topic())) }

func policyStartsEmpty(t *trial) {
	policy := t.policy(t.topic())
	equal(t, "number of bindings", len(policy.GetBindings()), 0)
	t.checkf(len(policy.GetEtag()) > 0, "it has no etag")
}

func policyChangesETag(t *trial) {
	topic := t.topic()
	before := t.policy(topic).GetEtag()
	set, err := t.setPolicy(topic, viewer())
	t.must(err)
	t.checkf(!slices.Equal(set.GetEtag(), before), "the etag is still %q", before)
	t.checkf(slices.Equal(set.GetEtag(), t.policy(topic).GetEtag()), "the etag read is not the one answered")
}

func policyNeedsETag(t *trial) {
	topic := t.topic()
	stale := t.policy(topic)
	_, err := t.setPolicy(topic, viewer())
	t.must(err)
	_, err = t.setPolicy(topic, stale)
	t.code("update with the stale etag", err, codes.Aborted)
	fresh := t.policy(topic)
	fresh.Bindings = nil
	_, err = t.setPolicy(topic, fresh)
	t.code("update with the fresh etag", err, codes.OK)
}

func ownerHasPermissions(t *trial) {
	topic := t.topic()
	for resource, want := range map[string][]string{
		topic:                 {"pubsub.topics.get", "pubsub.topics.publish"},
		t.subscription(topic): {"pubsub.subscriptions.consume", "pubsub.subscriptions.get"},
	} {
		got, err := t.policies.TestIamPermissions(t.ctx, &iampb.TestIamPermissionsRequest{Resource: resource, Permissions: want})
		t.must(err)
		t.sameSet("permissions", got.GetPermissions(), want)
	}
}
