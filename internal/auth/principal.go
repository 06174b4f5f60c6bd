// Package auth determines the caller of a request, and holds the rules of access.
//
// A [Principal] is the caller as a value of the domain. An [Authenticator] makes it from the
// headers of a request, in the same way for REST and gRPC. [Rules] say which callers may use each
// route and each RPC at all. The rules stand next to the registration of the routes and RPCs. The
// domain decides which callers may read or change a row, because only the domain knows the row's
// owner.
//
// # Tokens
//
// A token is a JWT in the compact form, of at most 8 KiB. It is signed with RS256, PS256, ES256 or
// EdDSA by a key of its issuer. It has iss, aud, sub and exp. If it has nbf or iat, they are
// checked, too. The clocks may differ by 30 seconds. A token with the header crit is refused. Keys
// that a token contains, or names by address, are ignored.
//
// The user's id is the claim sub if that is a UUID in its canonical form and not of version 5.
// Otherwise the id is a UUID of version 5, made from issuer and sub. The role admin is read from
// role and roles, at the top level and in app_metadata. The tenant is read from the claim that
// AUTH_TENANT_CLAIM names. If that variable is not set, there is only one tenant. If it is set, a
// token without a tenant is not valid. A service has no tenant. So over the API for users a service
// reads the rows of the default tenant.
//
// # Keys of an issuer
//
// The keys are found by the issuer's discovery document. Every request for the keys uses TLS,
// except to loopback on a laptop. A service starts without its issuer and fetches the keys in the
// background. Until the service has the keys, it answers every token with UNAVAILABLE. It fetches
// the keys again
//
//   - every four to four and a half minutes, so that a key that the issuer has removed is accepted
//     for at most five minutes;
//   - when a token names an unknown key, because an issuer may sign with a new key at once. At
//     most five such fetches follow each other directly, and then six a minute. The request waits
//     for at most two seconds, and at most 20 requests wait. Further requests are answered
//     RESOURCE_EXHAUSTED. UNAUTHENTICATED is the answer only if the issuer was asked after the
//     request came.
//
// While the issuer cannot be asked, the known keys stay in use for an hour.
package auth

import (
	"context"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Kind is the kind of a caller.
type Kind int

// The kinds. The zero value may call nothing but public operations.
const (
	Anonymous Kind = iota
	// User is an end user, known by a token of the issuer.
	User
	// Service is another service of the system, known by its service account.
	Service
	// Everyone is every caller of a service that is open. A service is open on a developer's
	// machine, or if its operator has configured that.
	Everyone
)

// Principal is the caller of a request. It is comparable.
type Principal struct {
	Kind Kind
	// User is the id of a User.
	User uuid.UUID
	// Admin says that a User may change the rows of all users.
	Admin bool
	// Service is the email of a Service's account.
	Service string
	// Tenant is the name of the tenant of the caller. The caller may see only the rows of this
	// tenant.
	Tenant string
}

// MayActFor reports whether the caller may read and change the rows of that user. uuid.Nil stands
// for no user. Only a caller that may act for all users may act for uuid.Nil.
func (p Principal) MayActFor(user uuid.UUID) bool {
	return p.Kind == Everyone || p.Kind == User && (p.Admin || p.User == user && user != uuid.Nil)
}

// Scope names the caller in keys that belong to one caller: idempotency keys, page tokens and
// rates. It is empty for Everyone and Anonymous. For a user of the default tenant, Scope does not
// name the tenant. So keys that were made before tenants existed stay valid.
func (p Principal) Scope() string {
	switch p.Kind {
	case User:
		if p.Tenant != eventing.DefaultTenant {
			return "tenant:" + p.Tenant + " user:" + p.User.String()
		}
		return "user:" + p.User.String()
	case Service:
		return "service:" + p.Service
	case Anonymous, Everyone:
	}
	return ""
}

type contextKey struct{}

// With returns a context with the caller.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// Of returns the caller of a request, or Anonymous if ctx has no caller. Only the code of the two
// protocols calls Of. That code passes the caller on as a value.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}
