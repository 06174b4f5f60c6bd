// Package auth determines the caller of a request, and holds the rules of access.
//
// A [Principal] is the caller as a value of the domain. An [Authenticator] makes it from
// the headers of a request, alike for REST and gRPC. [Rules] say for each route and each
// RPC, next to their registration, which callers get in at all; the domain decides who
// may read or change a row, since only it knows the row's owner.
//
// # Tokens
//
// A token is a JWT in the compact form, of at most 8 KiB, signed with RS256, PS256, ES256
// or EdDSA by a key of its issuer. It has iss, aud, sub and exp; nbf and iat count where
// it has them, with a leeway of 30 seconds. A token with the header crit is refused, and
// keys that a token brings along, or names by address, are ignored. The user's id is the
// claim sub if that is a UUID, and otherwise a UUID (version 5) of issuer and sub. The
// role admin is read from role and roles, also inside of app_metadata, and the tenant from
// the claim that AUTH_TENANT_CLAIM names. Without that variable there is one tenant; with
// it, a token without a tenant is not valid. A service has no tenant: what it reads over
// the API for users is of the default one.
//
// # Keys of an issuer
//
// They are found by the issuer's discovery document, over TLS except on a laptop's
// loopback. A service starts without its issuer, fetches the keys in the background, and
// answers a token with UNAVAILABLE until it has them. They are fetched again
//
//   - every four to four and a half minutes: a key that the issuer has removed is
//     accepted for at most five minutes;
//   - when a token names a key that is not known, at most five times at once and then six
//     times a minute: an issuer may sign with a new key at once. The request waits for two
//     seconds at most, and 20 requests at most wait; beyond that the answer is RESOURCE_EXHAUSTED.
//     UNAUTHENTICATED is the answer only when the issuer was asked after the request came.
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
	// Everyone is every caller of a service that runs open: on a developer's machine, or
	// because its operator said so.
	Everyone
)

// Principal is the caller of a request. It is comparable.
type Principal struct {
	Kind Kind
	// User is the id of a User.
	User uuid.UUID
	// Admin is a User's role: it may change the rows of all users.
	Admin bool
	// Service is the email of a Service's account.
	Service string
	// Tenant is the only one whose rows the caller may see.
	Tenant string
}

// MayActFor reports whether the caller may read and change what belongs to that user.
// uuid.Nil is no user: only a caller that may act for all users may act for it.
func (p Principal) MayActFor(user uuid.UUID) bool {
	return p.Kind == Everyone || p.Kind == User && (p.Admin || p.User == user && user != uuid.Nil)
}

// Scope names the caller in keys that belong to one caller: idempotency keys, page tokens
// and rates. It is empty for Everyone. The default tenant is not named: keys of before
// tenants stay valid.
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

// Of returns the caller of a request; it is Anonymous without one. Only the two protocols
// call it: they pass the caller on as a value.
func Of(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}
