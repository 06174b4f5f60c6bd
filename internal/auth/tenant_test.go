package auth

import (
	"net/http"
	"strings"
	"testing"

	"example.com/lockstep/internal/canary"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
)

// The tenant is a text at the path of claims, whose names may have dots themselves.
func TestTenantOfAToken(t *testing.T) {
	t.Parallel()
	claims := userClaims{
		"tenant_id": "acme", "app_metadata": map[string]any{"tenant_id": "bell", "number": 1.0},
		"https://example.com/tenant": "corp", "empty": "", "long": strings.Repeat("a", 65), "line": "a\nb", "path": "../x", "spaced": "a b",
		"canary": canary.Tenant,
		"most":   strings.Repeat("a", 64),
	}
	for path, want := range map[string]string{
		"": "default", "tenant_id": "acme", "app_metadata.tenant_id": "bell", "https://example.com/tenant": "corp", "most": strings.Repeat("a", 64),
		"app_metadata": "", "app_metadata.number": "", "app_metadata.none": "", "tenant_id.more": "", "none": "", "none.at.all": "",
		"empty": "", "long": "", "line": "", "path": "", "spaced": "", "canary": "",
	} {
		got, err := claims.tenant(path)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestATokenWithoutItsTenantIsNotValid(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.auth.tenants = "tenant_id"
	for tenant, want := range map[any]problem.Code{"acme": noProblem, "no name": problem.CodeUnauthenticated, nil: problem.CodeUnauthenticated} {
		token := w.sign(t, map[string]any{"tenant_id": tenant})
		p, err := w.auth.Principal(t.Context(), http.Header{"Authorization": {"Bearer " + token}})
		if codeOf(err) != want || err == nil && p.Tenant != tenant || err != nil && p != (Principal{}) {
			t.Errorf("tenant %v: %+v, %v", tenant, p, err)
		}
	}
}

// Idempotency keys and page tokens are kept apart by their callers' scopes. A user may be in several tenants.
func TestScopesTellCallersApart(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Principal{
		"user:" + alice.String():             {Kind: User, User: alice, Tenant: eventing.DefaultTenant},
		"tenant:acme user:" + alice.String(): {Kind: User, User: alice, Tenant: "acme"},
		"service:" + account:                 {Kind: Service, Service: account, Tenant: eventing.DefaultTenant},
		"":                                   {Kind: Everyone, Tenant: eventing.DefaultTenant},
	} {
		if got := p.Scope(); got != want {
			t.Errorf("%+v has the scope %q, want %q", p, got, want)
		}
	}
}
