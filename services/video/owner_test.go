package video

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/authtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/services/video/aggregate"
)

// The callers of the tests below.
var (
	owner    = auth.Principal{Kind: auth.User, User: authtest.Owner, Tenant: eventing.DefaultTenant}
	stranger = auth.Principal{Kind: auth.User, User: uuid.MustParse("00000000-0000-4000-8000-00000000000b"), Tenant: eventing.DefaultTenant}
	admin    = auth.Principal{Kind: auth.User, User: uuid.MustParse("00000000-0000-4000-8000-00000000000c"), Admin: true, Tenant: eventing.DefaultTenant}
	replica  = auth.Principal{Kind: auth.Service, Service: "catalog@p.iam.gserviceaccount.com", Tenant: eventing.DefaultTenant}
	callers  = map[string]auth.Principal{
		"owner": owner, "stranger": stranger, "admin": admin, "service": replica, "everyone": everyone, "anonymous": {Tenant: eventing.DefaultTenant},
	}
)

// reasonOf is the reason of a problem, or "" without an error.
func reasonOf(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return problem.ReasonOf(p.GRPCStatus().Err())
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// owned creates a video of owner.
func (a *api) owned() Video {
	a.Helper()
	result, err := a.service.Create(a.Context(), Video{UploaderID: owner.User, Title: "t"}, by(owner), nil)
	if err != nil {
		a.Fatal(err)
	}
	return result.Value
}

func by(caller auth.Principal, keys ...string) aggregate.WriteOptions {
	return aggregate.WriteOptions{Caller: caller, Keys: keys}
}

// Each write of what belongs to a user is for this user, admins, and callers of a service
// that runs open. All others are refused, and change nothing.
func TestWritesAreTheOwners(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	writes := map[string]func(v Video, o aggregate.WriteOptions) error{
		"create": func(_ Video, o aggregate.WriteOptions) error {
			_, err := a.service.Create(t.Context(), Video{UploaderID: owner.User, Title: "t"}, o, nil)
			return err
		},
		"update": func(v Video, o aggregate.WriteOptions) error {
			_, err := a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: "u"}, o, nil)
			return err
		},
		"update to the same": func(v Video, o aggregate.WriteOptions) error {
			_, err := a.service.Update(t.Context(), v.ID, []string{"title"}, v, o, nil)
			return err
		},
		"delete": func(v Video, o aggregate.WriteOptions) error {
			_, err := a.service.Delete(t.Context(), v.ID, "", o, nil)
			return err
		},
	}
	a.addEngagementWrites(writes)
	for what, write := range writes {
		for who, caller := range callers {
			v := a.liked()
			before := a.rows()
			err := write(v, by(caller, uuid.NewString()))
			if slices.Contains([]string{"owner", "admin", "everyone"}, who) {
				if err != nil {
					t.Errorf("%s by %s: %v", what, who, err)
				}
				continue
			}
			if after := a.rows(); reasonOf(err) != "PERMISSION_DENIED" || after != before {
				t.Errorf("%s by %s: %v; rows %+v became %+v", what, who, err, before, after)
			}
		}
	}
}

// That there is no such video, or that it was deleted, is the answer to every caller. The
// version is the answer to those only that may change the video.
func TestAVideoThatIsNotThereHasNoOwner(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	deleted, kept := a.owned(), a.owned()
	if _, err := a.service.Delete(t.Context(), deleted.ID, "", by(owner), nil); err != nil {
		t.Fatal(err)
	}
	for who, caller := range callers {
		stale := "PERMISSION_DENIED"
		if caller.MayActFor(owner.User) {
			stale = "VERSION_MISMATCH"
		}
		for id, want := range map[uuid.UUID]string{uuid.New(): "VIDEO_NOT_FOUND", deleted.ID: "VIDEO_DELETED", kept.ID: stale} {
			o := by(caller)
			o.IfVersion = rest.IsVersion(7)
			_, updated := a.service.Update(t.Context(), id, []string{"title"}, Video{Title: "u"}, o, nil)
			_, removed := a.service.Delete(t.Context(), id, "", o, nil)
			if diff := cmp.Diff([]string{want, want}, []string{reasonOf(updated), reasonOf(removed)}); diff != "" {
				t.Errorf("update and delete by %s (-want +got):\n%s", who, diff)
			}
		}
	}
}

// A key belongs to its principal: the same key of another one is another key, which neither
// shows the first one's answer nor is in its way.
func TestKeysBelongToTheirPrincipal(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.owned()
	update := func(caller auth.Principal, title string) (aggregate.Result[Video], error) {
		return a.service.Update(t.Context(), v.ID, []string{"title"}, Video{Title: title}, by(caller, "k"), nil)
	}
	if _, err := update(owner, "first"); err != nil {
		t.Fatal(err)
	}
	if got, err := update(stranger, "first"); reasonOf(err) != "PERMISSION_DENIED" || got.Value.ID != uuid.Nil {
		t.Errorf("the key and the body of the owner, by a stranger: %+v, %v", got, err)
	}
	for _, caller := range []auth.Principal{admin, everyone} {
		title := caller.Scope() + "'s"
		if got, err := update(caller, title); err != nil || got.Replayed || got.Value.Title != title {
			t.Errorf("the owner's key, by %q: %+v, %v", caller.Scope(), got, err)
		}
	}
	for caller, title := range map[auth.Principal]string{owner: "first", admin: admin.Scope() + "'s", everyone: "'s"} {
		if got, err := update(caller, title); err != nil || !got.Replayed || got.Value.Title != title {
			t.Errorf("a retry by %q: %+v, %v", caller.Scope(), got, err)
		}
	}
	create := func(caller auth.Principal) (aggregate.Result[Video], error) {
		return a.service.Create(t.Context(), Video{UploaderID: caller.User, Title: "t"}, by(caller, "k"), nil)
	}
	first, err := create(owner)
	second, err2 := create(stranger)
	if err != nil || err2 != nil || second.Replayed || first.Value.ID == second.Value.ID {
		t.Errorf("%+v, %v; %+v, %v", first, err, second, err2)
	}
	rows, _ := a.admin.Query(t.Context(), `SELECT DISTINCT principal FROM video.idempotency_keys ORDER BY 1`)
	principals, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", owner.Scope(), stranger.Scope(), admin.Scope()}
	if diff := cmp.Diff(want, principals); diff != "" {
		t.Errorf("principals (-want +got):\n%s", diff)
	}
}

// A page token is good for the caller that it was given to.
func TestPageTokensBelongToTheirCaller(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for range 2 {
		a.liked()
	}
	lists := map[string]func(caller auth.Principal, token string) (next string, err error){
		"videos": func(caller auth.Principal, token string) (next string, err error) {
			_, next, err = a.service.List(t.Context(), caller, Filter{}, 1, token, nil)
			return next, err
		},
		"engagements": a.engagementPage,
	}
	for what, list := range lists {
		for _, given := range []auth.Principal{owner, admin, everyone} {
			next, err := list(given, "")
			if err != nil || next == "" {
				t.Fatalf("%s of %q: %q, %v", what, given.Scope(), next, err)
			}
			for _, caller := range []auth.Principal{owner, admin, everyone} {
				_, err := list(caller, next)
				var fields []problem.Field
				if p, ok := errors.AsType[*problem.Error](err); ok {
					fields = p.Fields
				}
				refused := len(fields) == 1 && fields[0].Field == "page_token"
				if refused != (caller != given) || err != nil && !refused {
					t.Errorf("%s: the token of %q, sent by %q: %v", what, given.Scope(), caller.Scope(), err)
				}
			}
		}
	}
}
