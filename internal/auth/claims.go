package auth

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// adminRole is the role of a user who may change the rows of all users.
const adminRole = "admin"

// userClaims are all claims of an end user's token. Issuers differ in the types of their
// claims, and a claim of an unexpected type gives no role.
type userClaims map[string]any

// admin reports whether the user has the role admin. It reads the claims in which Supabase and
// other issuers put roles that a user cannot change. Supabase's user_metadata is not such a claim.
func (c userClaims) admin() bool {
	app, _ := c["app_metadata"].(map[string]any)
	return slices.ContainsFunc([]any{c["role"], c["roles"], app["role"], app["roles"]}, namesAdmin)
}

func namesAdmin(claim any) bool {
	several, _ := claim.([]any)
	return claim == adminRole || slices.Contains(several, any(adminRole))
}

// tenant returns the tenant in the claim at path. If claims are nested, path has dots between their
// names. Supabase has the tenant in app_metadata.tenant_id, and Identity Platform has it in
// firebase.tenant. If path is empty, tenant returns the default tenant.
func (c userClaims) tenant(path string) (string, error) {
	if path == "" {
		return eventing.DefaultTenant, nil
	}
	tenant, whole := c[path].(string) // a name may have dots itself: https://example.com/tenant
	if !whole {
		inner := map[string]any(c)
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			inner, _ = inner[name].(map[string]any)
		}
		tenant, _ = inner[names[len(names)-1]].(string)
	}
	if !tenantName.MatchString(tenant) {
		return "", fmt.Errorf("the claim %s is no tenant: 1 to 64 of a-z, A-Z, 0-9, dot, dash and underscore", path)
	}
	return tenant, nil
}

// tenantName allows few characters, because the name is a column of each row, an attribute of each
// event, and a label of metrics.
var tenantName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

// serviceClaims are the claims that are read from a service account's ID token.
type serviceClaims struct {
	Email    string `json:"email"`
	Verified bool   `json:"email_verified"`
}

// userID returns the id of a user. The id is the subject if the subject is a UUID in its canonical
// form and not of version 5. Otherwise the id is a UUID of version 5, which is a hash of the issuer
// and the subject. Two subjects never have the same id. For that reason a UUID in capitals is
// hashed. A UUID of version 5 is hashed because somebody could choose it to equal the hash of
// another subject.
func userID(issuer, subject string) uuid.UUID {
	if id, err := uuid.Parse(subject); err == nil && id.String() == subject && id.Version() != 5 {
		return id
	}
	return uuid.NewSHA1(uuid.NewSHA1(uuid.NameSpaceURL, []byte(issuer)), []byte(subject))
}
