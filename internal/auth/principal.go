// Package auth determines the caller of a request, and holds the rules of access.
//
// A [Principal] is the caller as a value of the domain. An [Authenticator] makes it from
// the headers of a request, alike for REST and gRPC. [Rules] say for each route and each
// RPC, next to their registration, which callers get in at all; the domain decides who
// may read or change a row, since only it knows the row's owner.
package auth

import (
	"context"

	"github.com/google/uuid"
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

// DefaultTenant is the tenant of all rows and callers of a system with one tenant.
const DefaultTenant = "default"

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
// and rates. It is empty for Everyone.
func (p Principal) Scope() string {
	switch p.Kind {
	case User:
		return "user:" + p.User.String()
	case Service:
		return "service:" + p.Service
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
