package iam

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// These are the documented limits of a policy. The size is documented as "a few 10s of KB". Each
// occurrence of a principal counts. https://cloud.google.com/iam/quotas#limits
const (
	maxPolicySize = 64 << 10
	maxPrincipals = 1500
	maxGroups     = 250
)

// conditionVersion is the lowest version of a policy that can have conditions.
const conditionVersion = 3

// concealed is part of the role name of a binding whose condition is not shown. This is the case if
// the caller did not ask for conditions. https://cloud.google.com/iam/docs/troubleshooting-withcond
const concealed = "_withcond_"

var (
	rolePattern = regexp.MustCompile(`^((projects|organizations)/[^/]+/)?roles/[A-Za-z0-9_.]+$`)
	// https://cloud.google.com/iam/docs/principal-identifiers
	memberPattern = regexp.MustCompile(`^(allUsers|allAuthenticatedUsers|(deleted:)?(user|serviceAccount|group):[^@:]+@[^@]+|` +
		`domain:[^:]+|project(Owner|Editor|Viewer):[^:]+|(deleted:)?principal(Set)?://.+|serviceAccount:[^@]+\[[^@]+\])$`)
	policyFields = []string{"bindings", "etag", "version"}
)

// checkSet returns INVALID_ARGUMENT if the service would refuse the policy. The error names the
// field.
func checkSet(r *iampb.SetIamPolicyRequest) error {
	if r.GetPolicy() == nil {
		return status.Error(codes.InvalidArgument, "policy: is missing")
	}
	if size := proto.Size(r.GetPolicy()); size > maxPolicySize {
		return status.Errorf(codes.InvalidArgument, "policy: has %d bytes, at most %d", size, maxPolicySize)
	}
	for _, path := range r.GetUpdateMask().GetPaths() {
		if !slices.Contains(policyFields, path) {
			return status.Errorf(codes.InvalidArgument, "update_mask: %q is none of %s", path, strings.Join(policyFields, ", "))
		}
	}
	if err := checkVersion("policy.version", r.GetPolicy().GetVersion()); err != nil {
		return err
	}
	return checkBindings(r.GetPolicy())
}

func checkVersion(field string, version int32) error {
	if version == 0 || version == 1 || version == conditionVersion {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "%s: is %d, must be 0, 1 or 3", field, version)
}

func checkBindings(policy *iampb.Policy) error {
	principals, groups := 0, 0
	for i, binding := range policy.GetBindings() {
		if err := checkBinding(fmt.Sprintf("policy.bindings[%d]", i), binding, policy.GetVersion()); err != nil {
			return err
		}
		principals += len(binding.GetMembers())
		for _, member := range binding.GetMembers() {
			if strings.HasPrefix(member, "group:") || strings.HasPrefix(member, "domain:") {
				groups++
			}
		}
	}
	if principals > maxPrincipals || groups > maxGroups {
		return status.Errorf(codes.InvalidArgument, "policy.bindings: name %d principals, %d of them groups or domains; at most %d and %d",
			principals, groups, maxPrincipals, maxGroups)
	}
	return nil
}

func checkBinding(field string, binding *iampb.Binding, version int32) error {
	if !rolePattern.MatchString(binding.GetRole()) || strings.Contains(binding.GetRole(), concealed) {
		return status.Errorf(codes.InvalidArgument, "%s.role: %q is no role", field, binding.GetRole())
	}
	for i, member := range binding.GetMembers() {
		if !memberPattern.MatchString(member) {
			return status.Errorf(codes.InvalidArgument, "%s.members[%d]: %q is no principal", field, i, member)
		}
	}
	switch condition := binding.GetCondition(); {
	case condition == nil:
	case version < conditionVersion:
		return status.Errorf(codes.InvalidArgument, "%s.condition: needs policy.version 3", field)
	case condition.GetExpression() == "" || condition.GetTitle() == "":
		return status.Errorf(codes.InvalidArgument, "%s.condition: needs an expression and a title", field)
	}
	return nil
}

// normalised merges bindings that have the same role and condition. It keeps the order of the
// bindings, and removes repeated members and bindings without members.
func normalised(bindings []*iampb.Binding) []*iampb.Binding {
	var result []*iampb.Binding
	for _, binding := range bindings {
		if len(binding.GetMembers()) == 0 {
			continue
		}
		same := func(b *iampb.Binding) bool {
			return b.GetRole() == binding.GetRole() && proto.Equal(b.GetCondition(), binding.GetCondition())
		}
		at := slices.IndexFunc(result, same)
		if at < 0 {
			at = len(result)
			result = append(result, &iampb.Binding{Role: binding.GetRole(), Condition: binding.GetCondition()})
		}
		for _, member := range binding.GetMembers() {
			if !slices.Contains(result[at].GetMembers(), member) {
				result[at].Members = append(result[at].Members, member)
			}
		}
	}
	return result
}

func hasConditions(bindings []*iampb.Binding) bool {
	return slices.ContainsFunc(bindings, func(b *iampb.Binding) bool { return b.GetCondition() != nil })
}

// withoutConditions returns the policy for a caller that asks for a version below 3. A binding that
// had a condition has a changed role name, which SetIamPolicy refuses.
func withoutConditions(policy *iampb.Policy) *iampb.Policy {
	if !hasConditions(policy.GetBindings()) {
		return policy
	}
	plain := &iampb.Policy{Version: 1, Etag: policy.GetEtag()}
	for _, b := range policy.GetBindings() {
		role := b.GetRole()
		if condition := b.GetCondition(); condition != nil {
			sum := sha256.Sum256([]byte(condition.GetTitle() + "\x00" + condition.GetExpression()))
			role += fmt.Sprintf("%s%x", concealed, sum[:10])
		}
		plain.Bindings = append(plain.Bindings, &iampb.Binding{Role: role, Members: b.GetMembers()})
	}
	return plain
}
