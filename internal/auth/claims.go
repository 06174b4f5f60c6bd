package auth

import (
	"slices"

	"github.com/google/uuid"
)

// adminRole is the role of those who may change the rows of all users.
const adminRole = "admin"

// userClaims are all claims of an end user's token. Issuers differ in the types of their
// claims, and a claim of an unexpected type gives no role.
type userClaims map[string]any

// admin looks where Supabase and others put roles that a user cannot change. Supabase's
// user_metadata is not such a place.
func (c userClaims) admin() bool {
	app, _ := c["app_metadata"].(map[string]any)
	return slices.ContainsFunc([]any{c["role"], c["roles"], app["role"], app["roles"]}, namesAdmin)
}

func namesAdmin(claim any) bool {
	several, _ := claim.([]any)
	return claim == adminRole || slices.Contains(several, any(adminRole))
}

// serviceClaims are those of a service account's ID token.
type serviceClaims struct {
	Email    string `json:"email"`
	Verified bool   `json:"email_verified"`
}

// userID is the subject if that is a UUID in its canonical form, and otherwise a UUID
// (version 5) of the issuer and the subject. Two subjects never have one id: a subject in
// capitals is hashed, and so is one of version 5, which could be made to be the hash of
// another.
func userID(issuer, subject string) uuid.UUID {
	if id, err := uuid.Parse(subject); err == nil && id.String() == subject && id.Version() != 5 {
		return id
	}
	return uuid.NewSHA1(uuid.NewSHA1(uuid.NameSpaceURL, []byte(issuer)), []byte(subject))
}
