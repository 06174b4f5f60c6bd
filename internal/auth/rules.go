package auth

import (
	"fmt"
	"slices"
	"strings"

	"example.com/lockstep/internal/problem"
)

// Access is the kind of callers that an operation is for.
type Access int

// The kinds of access. The zero value lets no caller in.
const (
	Closed Access = iota
	// Public is for every caller, with or without a token.
	Public
	// SignedIn is for users and services.
	SignedIn
	// Users is for users.
	Users
	// Services is for other services of the system.
	Services
)

// admitted has the kinds of callers that each access lets in.
var admitted = map[Access][]Kind{
	Public:   {Anonymous, User, Service, Everyone},
	SignedIn: {User, Service, Everyone},
	Users:    {User, Everyone},
	Services: {Service, Everyone},
}

// Rules maps each operation of a service to its access. An operation is a route ("POST /v1/videos")
// or a full gRPC method ("/video.v1.VideoService/CreateVideo").
type Rules map[string]Access

// Complete returns an error unless each of the operations has a rule, and each rule is for one of
// the operations.
func (r Rules) Complete(operations []string) error {
	var faults []string
	for _, operation := range operations {
		if r[operation] == Closed {
			faults = append(faults, operation+" has no rule")
		}
	}
	for operation := range r {
		if !slices.Contains(operations, operation) {
			faults = append(faults, operation+" has a rule and is not registered")
		}
	}
	if len(faults) > 0 {
		slices.Sort(faults)
		return fmt.Errorf("rules of access: %s", strings.Join(faults, "; "))
	}
	return nil
}

// Check returns nil if the caller may call the operation. Otherwise it returns the problem for the
// answer. The problem is UNAUTHENTICATED for a caller without an identity, and PERMISSION_DENIED
// for any other caller.
func (r Rules) Check(operation string, p Principal) error {
	switch {
	case slices.Contains(admitted[r[operation]], p.Kind):
		return nil
	case p.Kind == Anonymous:
		return Unauthenticated(nil)
	}
	return Denied("This operation is not for this caller.")
}

// Unauthenticated is the problem of a request without a valid token. cause is logged and
// never shown.
func Unauthenticated(cause error) *problem.Error {
	p := problem.New(problem.CodeUnauthenticated, "", "A valid bearer token is required.")
	p.Cause = cause
	return p
}

// Denied is the problem of a caller that is known but lacks the permission.
func Denied(detail string) *problem.Error {
	return problem.New(problem.CodeDenied, "", detail)
}
