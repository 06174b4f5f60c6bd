// Package iam keeps the IAM policies of a server's resources and serves google.iam.v1.IAMPolicy.
// Policies are stored and returned, but not enforced. Every caller may do everything.
package iam

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"cloud.google.com/go/iam/apiv1/iampb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unsetETag is the etag of a policy that was never set. In JSON it is "ACAB",
// as in the service's answers.
var unsetETag = []byte{0x00, 0x20, 0x01}

// Policies keeps the policies of topics, subscriptions, schemas and snapshots.
//
// SetIamPolicy replaces the whole policy atomically. If the request has an etag, it must be the
// etag of the current policy. Otherwise SetIamPolicy returns ABORTED, and the caller must read the
// policy again. https://cloud.google.com/iam/docs/reference/rest/v1/Policy
type Policies struct {
	iampb.UnimplementedIAMPolicyServer

	exists func(resource string) error

	mu sync.Mutex
	// set has the policies that were set. A stored policy never changes, because each change stores
	// a new policy. The total size is at most the number of resources times maxPolicySize.
	set map[string]*iampb.Policy
}

// NewPolicies returns an empty set of policies. It calls exists without holding a lock, to check
// that a resource exists. The caller of the RPC gets the error of exists. So this error must be a
// status with NOT_FOUND or INVALID_ARGUMENT.
func NewPolicies(exists func(resource string) error) *Policies {
	return &Policies{exists: exists, set: make(map[string]*iampb.Policy)}
}

// Remove deletes the policy of a resource. It must be called after the resource is deleted.
// Otherwise a concurrent SetIamPolicy could leave a policy for a later resource of the same name.
func (p *Policies) Remove(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.set, resource)
}

// Forget deletes all policies. It must be called after all resources are deleted.
func (p *Policies) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.set)
}

// GetIamPolicy returns the policy of a resource, which is empty if none was set. If the caller asks
// for a version below 3, the result has no conditions. Then a binding that has a condition has a
// changed role name, as Google documents it.
func (p *Policies) GetIamPolicy(_ context.Context, r *iampb.GetIamPolicyRequest) (*iampb.Policy, error) {
	if err := p.exists(r.GetResource()); err != nil {
		return nil, err
	}
	version := r.GetOptions().GetRequestedPolicyVersion()
	if err := checkVersion("options.requested_policy_version", version); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	policy := p.current(r.GetResource())
	if version < conditionVersion {
		return withoutConditions(policy), nil
	}
	return policy, nil
}

// SetIamPolicy stores the bindings of a policy. It ignores audit configs, which Pub/Sub does not
// have.
func (p *Policies) SetIamPolicy(_ context.Context, r *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	if err := p.exists(r.GetResource()); err != nil {
		return nil, err
	}
	if err := checkSet(r); err != nil {
		return nil, err
	}
	policy, err := p.replace(r)
	if err != nil {
		return nil, err
	}
	// A concurrent call may have deleted the resource and its policy before this policy was stored.
	if err := p.exists(r.GetResource()); err != nil {
		p.Remove(r.GetResource())
		return nil, err
	}
	return policy, nil
}

func (p *Policies) replace(r *iampb.SetIamPolicyRequest) (*iampb.Policy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	current, asked := p.current(r.GetResource()), r.GetPolicy()
	if len(asked.GetEtag()) > 0 {
		if !bytes.Equal(asked.GetEtag(), current.GetEtag()) {
			return nil, status.Errorf(codes.Aborted, "policy.etag: there were concurrent policy changes, "+
				"retry the whole read-modify-write: the request's ETag %q is not the current policy's %q", asked.GetEtag(), current.GetEtag())
		}
		if hasConditions(current.GetBindings()) && asked.GetVersion() < conditionVersion {
			return nil, status.Error(codes.InvalidArgument, "policy.version: must be 3, since the current policy has conditions")
		}
	}
	next := &iampb.Policy{Version: 1, Etag: binary.BigEndian.AppendUint64(nil, rand.Uint64()), Bindings: current.GetBindings()}
	if r.GetUpdateMask() == nil || slices.Contains(r.GetUpdateMask().GetPaths(), "bindings") {
		next.Bindings = normalised(asked.GetBindings())
	}
	if hasConditions(next.GetBindings()) {
		next.Version = conditionVersion
	}
	p.set[r.GetResource()] = next
	return next, nil
}

func (p *Policies) current(resource string) *iampb.Policy {
	if policy := p.set[resource]; policy != nil {
		return policy
	}
	return &iampb.Policy{Etag: unsetETag}
}

// TestIamPermissions returns all permissions that the request asks for. If the resource does not
// exist, it returns no permissions and no error.
func (p *Policies) TestIamPermissions(_ context.Context, r *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	for i, permission := range r.GetPermissions() {
		if permission == "" || strings.Contains(permission, "*") {
			return nil, status.Errorf(codes.InvalidArgument, "permissions[%d]: %q is empty or has a wildcard", i, permission)
		}
	}
	err := p.exists(r.GetResource())
	switch status.Code(err) {
	case codes.OK:
		return &iampb.TestIamPermissionsResponse{Permissions: r.GetPermissions()}, nil
	case codes.NotFound:
		return &iampb.TestIamPermissionsResponse{}, nil
	default:
		return nil, err
	}
}
