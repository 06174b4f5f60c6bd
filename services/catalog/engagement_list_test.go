package catalog

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// likes reads a page of user's engagements.
func (f *fixture) likes(t testing.TB, user uuid.UUID, q consistency.Request) (EngagementPage, error) {
	t.Helper()
	q.TokenField, q.ModeField = "token", "mode"
	d, err := EngagementRequirement(q)
	if err != nil {
		t.Fatal(err)
	}
	return f.service.ListEngagements(t.Context(), EngagementQuery{Caller: everyone, UserID: user.String()}, d)
}

func TestEngagementListPages(t *testing.T) {
	t.Parallel()
	f, user := setUp(t), uuid.New()
	var want []Engagement
	for range 7 {
		l := like{user, newVideoID()}
		f.must(t, inbox.Applied, l.put(1))
		want = append([]Engagement{l.row(1)}, want...)
	}
	f.must(t, inbox.Applied, newLike().put(1), like{user, newVideoID()}.deleted(1))
	back := like{user, newVideoID()}
	f.must(t, inbox.Applied, back.put(1), back.deleted(2), back.put(3))
	want = append([]Engagement{back.row(3)}, want...)
	for _, size := range []int{0, 1, 3, 7, 8, 9} {
		var got []Engagement
		q := EngagementQuery{Caller: everyone, UserID: strings.ToUpper(user.String()), PageSize: size}
		for more := true; more; more = q.PageToken != "" {
			p, err := f.service.ListEngagements(t.Context(), q, consistency.Requirement{})
			if err != nil || size > 0 && len(p.Engagements) > size || p.Source != SourceProjection {
				t.Fatalf("page of %d: %+v, %v", size, p, err)
			}
			got, q.PageToken = append(got, p.Engagements...), p.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
}

// The list is as fresh as the token's positions of this user's engagements; engagements
// that the projection lacks are first taken over from the owner.
func TestEngagementListWithToken(t *testing.T) {
	t.Parallel()
	f, a := setUp(t), newLike()
	b, c, other := like{a.user, newVideoID()}, like{a.user, newVideoID()}, newLike()
	f.must(t, inbox.Applied, a.put(1), b.put(1))
	session := func(positions ...consistency.Position) string {
		return tokenOf(append(positions, other.position(9), position(other.video, 9))...)
	}
	want := func(token string, source Source, want ...Engagement) {
		t.Helper()
		p, err := f.likes(t, a.user, consistency.Request{Token: token})
		if diff := cmp.Diff(want, p.Engagements); err != nil || diff != "" || p.Source != source || p.Stale != nil {
			t.Fatalf("from %q, %v (-want +got):\n%s", p.Source, err, diff)
		}
	}
	want(session(a.position(1), b.position(1)), SourceProjection, b.row(1), a.row(1))
	unasked(t, f)

	f.peer.hasLike(b.owners(3))
	_, err := f.likes(t, a.user, consistency.Request{Token: session(b.position(2), c.position(1))})
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD") // the owner lacks one of the two
	f.peer.hasLike(c.owners(2))
	want(session(a.position(1), b.position(2), c.position(1)), SourceAuthority, c.row(2), b.row(3), a.row(1))
	f.wantStored(t, b, b.row(3))
	want(session(b.position(3), c.position(2)), SourceProjection, c.row(2), b.row(3), a.row(1))

	f.peer.hasLike(c.ownersGrave(3))
	want(session(c.position(3)), SourceAuthority, b.row(3), a.row(1))
	f.peer.hasLike(c.owners(4)) // put again
	want(session(c.position(4)), SourceAuthority, c.row(4), b.row(3), a.row(1))
	_, err = f.likes(t, a.user, consistency.Request{Token: session(c.position(5))})
	wantProblem(t, err, problem.CodeAhead, "TOKEN_AHEAD")
}

func TestEngagementListModes(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1))
	f.peer.hasLike(l.owners(2))
	f.peer.fails(status.Error(codes.Unavailable, "away"))
	behind := []consistency.StaleAggregate{{ID: l.id(), Version: 1, AtLeast: 2}}
	for name, tc := range map[string]struct {
		ask    consistency.Request
		stale  []consistency.StaleAggregate
		reason string
	}{
		"no token":                      {consistency.Request{}, nil, ""},
		"minimize latency":              {consistency.Request{Mode: consistency.MinimizeLatency, Token: l.token(2)}, behind, ""},
		"minimize latency, of what is":  {consistency.Request{Mode: consistency.MinimizeLatency, Token: l.token(1)}, nil, ""},
		"at least as fresh":             {consistency.Request{Token: l.token(2)}, nil, "NOT_FRESH_ENOUGH"},
		"at least as fresh, of what is": {consistency.Request{Token: l.token(1)}, nil, ""},
		"at least as fresh, else stale": {consistency.Request{Token: l.token(2), StaleIfError: true}, behind, ""},
		"another user's":                {consistency.Request{Token: newLike().token(2)}, nil, ""},
	} {
		f.service = NewService(f.pool, f.projector) // its circuit has seen nothing
		p, err := f.likes(t, l.user, tc.ask)
		if tc.reason != "" {
			wantProblem(t, err, problem.From(err).Code, tc.reason)
			continue
		}
		if diff := cmp.Diff(tc.stale, p.Stale); err != nil || diff != "" || !cmp.Equal(p.Engagements, []Engagement{l.row(1)}) || p.Source != SourceProjection {
			t.Errorf("%s: %+v, %v; stale (-want +got):\n%s", name, p, err, diff)
		}
	}
}

// The event ends the wait, here and at another instance; so does a repair.
func TestEngagementListWaits(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	near := f.otherInstance(t)
	for version, meanwhile := range []func(version int64){
		func(version int64) { f.must(t, inbox.Applied, l.put(version)) },
		func(version int64) { near.must(t, inbox.Applied, l.put(version)) },
		func(version int64) {
			f.peer.hasLike(l.owners(version))
			if _, err := near.likes(t, l.user, consistency.Request{Token: l.token(version)}); err != nil {
				t.Error(err)
			}
		},
	} {
		wanted := int64(version) + 1
		f.whileWaiting(t, func() {
			p, err := f.likes(t, l.user, consistency.Request{Token: l.token(wanted), Wait: 10 * time.Second})
			if err != nil || p.Source != SourceProjection || !cmp.Equal(p.Engagements, []Engagement{l.row(wanted)}) {
				t.Errorf("version %d: %+v, %v", wanted, p, err)
			}
		}, func() { meanwhile(wanted) })
	}
}

func TestEngagementListsAreEqualOverGRPCAndREST(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1), like{l.user, newVideoID()}.put(1))
	addr := f.listen(t)
	client := catalogv1.NewCatalogServiceClient(f.dial(t))
	f.peer.hasLike(l.owners(3))
	for name, tc := range map[string]struct {
		mode    string
		req     *catalogv1.ListUserEngagementsRequest
		source  string
		lagging int
	}{
		"latency": {"minimize-latency", &catalogv1.ListUserEngagementsRequest{
			AtLeastAsFresh: l.token(9), Consistency: catalogv1.Consistency_CONSISTENCY_MINIMIZE_LATENCY,
		}, "projection", 1},
		"plain": {"", &catalogv1.ListUserEngagementsRequest{}, "projection", 0},
		"token": {"at-least-as-fresh", &catalogv1.ListUserEngagementsRequest{AtLeastAsFresh: l.token(1)}, "projection", 0},
	} {
		headers := []string{"Prefer: wait=0"}
		for header, value := range map[string]string{"Consistency": tc.mode, "Consistency-Token": tc.req.GetAtLeastAsFresh()} {
			if value != "" {
				headers = append(headers, header+": "+value)
			}
		}
		r := call(t, addr, "GET /v1/users/"+l.user.String()+"/engagements?page_size=1", headers...)
		var md metadata.MD
		tc.req.UserId, tc.req.PageSize, tc.req.Wait = l.user.String(), 1, durationpb.New(0)
		resp, err := client.ListUserEngagements(t.Context(), tc.req, grpc.Header(&md))
		if err != nil || r.status != 200 {
			t.Fatalf("%s: %d %v, %v", name, r.status, r.body, err)
		}
		first := r.body["engagements"].([]any)[0]
		e := resp.GetEngagements()[0]
		overREST := []any{dig(first, "user_id"), dig(first, "video_id"), dig(first, "liked"), dig(first, "bookmarked"),
			dig(first, "watched_seconds"), dig(first, "version"), dig(first, "created_at"), dig(first, "updated_at"), r.body["next_page_token"]}
		overGRPC := []any{e.GetUserId(), e.GetVideoId(), e.GetLiked(), e.GetBookmarked(), float64(e.GetWatchedSeconds()), float64(e.GetVersion()),
			e.GetCreatedAt().AsTime().Format(time.RFC3339Nano), e.GetUpdatedAt().AsTime().Format(time.RFC3339Nano), resp.GetNextPageToken()}
		if diff := cmp.Diff(overREST, overGRPC); diff != "" || resp.GetNextPageToken() == "" {
			t.Errorf("%s (-REST +gRPC):\n%s", name, diff)
		}
		stale, _ := r.body["stale"].([]any)
		if len(stale) != tc.lagging || len(resp.GetStale()) != tc.lagging || r.body["source"] != tc.source ||
			r.header.Get("Consistency-Source") != tc.source || !slices.Equal(md.Get("Consistency-Source"), []string{tc.source}) {
			t.Errorf("%s: %v %v over REST, %v %v over gRPC", name, r.header, r.body, md, resp)
		}
	}
	r := call(t, addr, "GET /v1/users/"+l.user.String()+"/engagements?consistency_token="+l.token(3), "Prefer: wait=0")
	if r.body["source"] != "authority" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("behind the token: %v %v", r.header, r.body)
	}
	if r := call(t, addr, "GET /v1/users/"+uuid.NewString()+"/engagements"); len(r.body["engagements"].([]any)) != 0 {
		t.Errorf("of a user without engagements: %v", r.body)
	}
}

func TestHostileEngagementLists(t *testing.T) {
	t.Parallel()
	f, l := setUp(t), newLike()
	f.must(t, inbox.Applied, l.put(1))
	addr := f.listen(t)
	client := catalogv1.NewCatalogServiceClient(f.dial(t))
	good := "GET /v1/users/" + l.user.String() + "/engagements"
	next := rest.PageToken(l.video, l.user.String())
	named := func(id string) string {
		return tokenOf(consistency.Position{AggregateType: "engagement", AggregateID: id, Epoch: 1, Version: 1})
	}
	for _, tc := range []struct {
		line, header string
		status       int
		field        string
	}{
		{"GET /v1/users/me/engagements", "", 400, "user_id"},
		{"GET /v1/users/%7B" + l.user.String() + "%7D/engagements", "", 400, "user_id"},
		{"GET /v1/users//engagements", "", 400, "user_id"},
		{good + "/", "", 404, ""},
		{good + "/" + l.video.String(), "", 404, ""},
		{good + "?page_size=0", "", 400, "page_size"},
		{good + "?page_size=201", "", 400, "page_size"},
		{good + "?page_size=ten", "", 400, "page_size"},
		{good + "?page_token=garbage", "", 400, "page_token"},
		{good + "?page_token=" + next[:20], "", 400, "page_token"},
		{"GET /v1/users/" + uuid.NewString() + "/engagements?page_token=" + next, "", 400, "page_token"},
		{good + "?q=x", "", 400, "q"},
		{good + "?consistency_token=", "", 400, "consistency_token"},
		{good, "Consistency-Token: garbage", 400, "Consistency-Token"},
		{good, "Consistency-Token: " + named(l.user.String()), 400, "Consistency-Token"},
		{good, "Consistency-Token: " + named(strings.ToUpper(l.id())), 400, "Consistency-Token"},
		{good, "Consistency-Token: " + named(l.id()+":x"), 400, "Consistency-Token"},
		{good, "Consistency: fully-consistent", 400, "Consistency"},
		{good, "Consistency: at-least-as-fresh", 400, "Consistency"},
		{good, "Prefer: wait=-1", 400, "Prefer"},
		{strings.Replace(good, "GET", "POST", 1), "", 405, ""},
	} {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		if r := call(t, addr, tc.line, headers...); r.status != tc.status || blamed(r) != tc.field {
			t.Errorf("%.80s %.60s: %d blaming %q; want %d blaming %q", tc.line, tc.header, r.status, blamed(r), tc.status, tc.field)
		}
	}
	r := call(t, addr, "GET /v1/users/me/engagements?q=x&page_size=0", "Prefer: wait=-1")
	if errs, _ := r.body["errors"].([]any); r.status != 400 || len(errs) != 4 {
		t.Errorf("four faults: %d %v", r.status, r.body["errors"])
	}
	_, err := client.ListUserEngagements(t.Context(), &catalogv1.ListUserEngagementsRequest{PageSize: -1, Consistency: 99})
	if got, want := violations(err), []string{"consistency", "user_id", "page_size"}; !slices.Equal(got, want) {
		t.Errorf("three faults over gRPC: %v, want %v", got, want)
	}
	for field, req := range map[string]*catalogv1.ListUserEngagementsRequest{
		"user_id":           {},
		"page_size":         {UserId: l.user.String(), PageSize: -1},
		"page_token":        {UserId: l.user.String(), PageToken: next[:9]},
		"at_least_as_fresh": {UserId: l.user.String(), AtLeastAsFresh: named("x")},
		"wait":              {UserId: l.user.String(), Wait: durationpb.New(-1)},
		"consistency":       {UserId: l.user.String(), Consistency: 99},
	} {
		if _, err := client.ListUserEngagements(t.Context(), req); status.Code(err) != codes.InvalidArgument || violation(err) != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	f.wantStored(t, l, l.row(1))
	unasked(t, f)
}

// Without statistics, as after pg_upgrade, a page of a user's engagements does not read all of them.
func TestAPageOfEngagementsNeedsNoStatistics(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	pgtest.Exec(t, f.admin, `ALTER TABLE catalog.video_user_engagements_projection SET (autovacuum_enabled = off)`)
	pgtest.Exec(t, f.admin, `
		INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, version, created_at, updated_at)
		SELECT $1::uuid, (lpad(to_hex(n), 8, '0') || '-0000-7000-8000-000000000000')::uuid, 1, now(), now()
		  FROM generate_series(1, 30000) n ORDER BY md5(n::text)`, uploader)
	var last pgtest.Statement
	found, _, err := listEngagements(t.Context(), last.Of(t, f.pool), scopeOf(everyone), uploader, uuid.Max, 50, nil)
	if err != nil || len(found) != 50 {
		t.Fatalf("%d engagements, %v", len(found), err)
	}
	if pages := last.Pages(t, f.pool); pages > 100 {
		t.Errorf("a page of 50 engagements is read in %d pages", pages)
	}
}
