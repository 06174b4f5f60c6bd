package catalog

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// A page token is good for the caller that it was given to.
func TestPageTokensBelongToTheirCaller(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.must(t, inbox.Applied, createdEvent(newVideoID(), 1, "a"), createdEvent(newVideoID(), 1, "b"))
	callers := []auth.Principal{
		{Kind: auth.User, User: uuid.New(), Tenant: eventing.DefaultTenant}, {Kind: auth.User, User: uuid.New(), Admin: true, Tenant: eventing.DefaultTenant}, {Kind: auth.Service, Service: "s", Tenant: eventing.DefaultTenant}, everyone,
	}
	for _, given := range callers {
		page, err := f.service.List(t.Context(), Query{PageSize: 1, Caller: given}, consistency.Requirement{})
		if err != nil || page.Next == "" {
			t.Fatalf("%+v: %+v, %v", given, page, err)
		}
		for _, caller := range callers {
			_, err := f.service.List(t.Context(), Query{PageSize: 1, PageToken: page.Next, Caller: caller}, consistency.Requirement{})
			checkToken(t, given, caller, err)
		}
	}
}

// checkToken expects that a page token is good for the caller that it was given to, alone.
func checkToken(t *testing.T, given, caller auth.Principal, err error) {
	t.Helper()
	p, _ := errors.AsType[*problem.Error](err)
	refused := p != nil && len(p.Fields) == 1 && p.Fields[0].Field == "page_token"
	if refused != (caller != given) || err != nil && !refused {
		t.Errorf("the token of %q, sent by %q: %v", given.Scope(), caller.Scope(), err)
	}
}
