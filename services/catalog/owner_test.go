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

// A user's engagements are read by this user, admins, and callers of a service that runs
// open; a page token by the caller that it was given to.
func TestEngagementsAreReadByTheirUser(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	user := uuid.New()
	for range 2 {
		f.must(t, inbox.Applied, like{user: user, video: newVideoID()}.put(1))
	}
	admitted := []auth.Principal{{Kind: auth.User, User: user, Tenant: eventing.DefaultTenant}, {Kind: auth.User, User: uuid.New(), Admin: true, Tenant: eventing.DefaultTenant}, everyone}
	refused := []auth.Principal{{}, {Kind: auth.User, Tenant: eventing.DefaultTenant}, {Kind: auth.User, User: uuid.New(), Tenant: eventing.DefaultTenant}, {Kind: auth.Service, Service: "s", Tenant: eventing.DefaultTenant}}
	for _, caller := range refused {
		q := EngagementQuery{UserID: user.String(), PageSize: 1, Caller: caller}
		page, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
		if p := problem.From(err); p == nil || p.Code != problem.CodeDenied || len(page.Engagements) > 0 {
			t.Errorf("%+v: %+v, %v", caller, page, err)
		}
	}
	for _, given := range admitted {
		q := EngagementQuery{UserID: user.String(), PageSize: 1, Caller: given}
		page, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
		if err != nil || page.Next == "" {
			t.Fatalf("%+v: %+v, %v", given, page, err)
		}
		q.PageToken = page.Next
		for _, caller := range admitted {
			q.Caller = caller
			_, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
			checkToken(t, given, caller, err)
		}
	}
}

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
