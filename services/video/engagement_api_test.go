package video

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

// message is the form of e that gRPC answers to a write.
func message(e engagement.Engagement) *videov1.Engagement {
	return &videov1.Engagement{
		UserId: e.UserID.String(), VideoId: e.VideoID.String(), Liked: e.Liked, Bookmarked: e.Bookmarked, WatchedSeconds: e.WatchedSeconds,
		Version: e.Version, CreatedAt: aggregate.Timestamp(&e.CreatedAt), UpdatedAt: aggregate.Timestamp(&e.UpdatedAt), DeletedAt: aggregate.Timestamp(e.DeletedAt), Epoch: 1,
	}
}

func TestEngagementProtocolsAgree(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	userID, videoID := user.String(), v.ID.String()
	put := &videov1.PutEngagementRequest{UserId: userID, VideoId: videoID, Bookmarked: true, WatchedSeconds: 8}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "k")
	overGRPC, err := a.engage.PutEngagement(ctx, put)
	if err != nil {
		t.Fatal(err)
	}
	overREST := a.call("PUT", engaged(user, v), `{"bookmarked": true, "watched_seconds": 8}`, "Idempotency-Key", "k")
	if diff := cmp.Diff(overGRPC.GetEngagement(), message(overREST.engagement(t)), protocmp.Transform()); diff != "" ||
		overREST.field("consistency_token") != overGRPC.GetConsistencyToken() || overREST.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s is no replay of gRPC's answer (-gRPC +REST):\n%s", overREST.Raw, diff)
	}
	got, err := a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: userID, VideoId: videoID})
	if diff := cmp.Diff(overGRPC.GetEngagement(), got.GetEngagement(), protocmp.Transform(), protocmp.IgnoreFields(got.GetEngagement(), "last_event_id", "tenant_id")); err != nil || diff != "" {
		t.Errorf("get: %v (-put +got):\n%s", err, diff)
	}
	put.ExpectedVersion, put.Liked = 2, true
	if _, err := a.engage.PutEngagement(t.Context(), put); status.Code(err) != codes.Aborted || problem.ReasonOf(err) != "VERSION_MISMATCH" {
		t.Errorf("stale expected_version: %v", err)
	}
	removed, err := a.engage.DeleteEngagement(t.Context(), &videov1.DeleteEngagementRequest{
		UserId: strings.ToUpper(userID), VideoId: strings.ToUpper(videoID), ExpectedVersion: 1,
	})
	if err != nil || removed.GetVersion() != 2 || removed.GetConsistencyToken() == "" || removed.GetUserId() != userID || removed.GetVideoId() != videoID {
		t.Errorf("delete: %v %v", removed, err)
	}
	_, err = a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: userID, VideoId: videoID})
	if status.Code(err) != codes.NotFound || problem.ReasonOf(err) != "ENGAGEMENT_DELETED" || metadataOf(err)["version"] != "2" {
		t.Errorf("get of a deleted one: %v", err)
	}
	before := a.engagementRows(userID, videoID)
	want := &videov1.Engagement{
		UserId: userID, VideoId: videoID, Version: 2, Epoch: 1, CreatedAt: got.GetEngagement().GetCreatedAt(),
		UpdatedAt: removed.GetDeletedAt(), DeletedAt: removed.GetDeletedAt(),
	}
	if diff := cmp.Diff([]*videov1.Engagement{want}, before.GetEngagements(), protocmp.Transform(), protocmp.IgnoreFields(want, "last_event_id", "tenant_id")); diff != "" {
		t.Errorf("tombstone (-want +got):\n%s", diff)
	}
	_, err = a.engage.GetEngagement(t.Context(), &videov1.GetEngagementRequest{UserId: videoID, VideoId: videoID})
	if status.Code(err) != codes.NotFound || problem.ReasonOf(err) != "ENGAGEMENT_NOT_FOUND" {
		t.Errorf("get of none: %v", err)
	}
	checkLackedAsOf(t, err, before.GetAsOf(), a.engagementRows(userID, videoID).GetAsOf())
}

func TestEngagementListPages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	users, videos := []uuid.UUID{aggregate.NewID(), aggregate.NewID(), aggregate.NewID()}, []Video{a.create(), a.create(), a.create()}
	var all, alive []string
	for i, u := range slices.Backward(users) {
		for j, v := range slices.Backward(videos) {
			a.call("PUT", engaged(u, v), `{"liked": true}`).engagement(t)
			name := u.String() + ":" + v.ID.String()
			all = append(all, name)
			switch i {
			case j:
				a.call("DELETE", engaged(u, v), nil)
			case 1:
				alive = append(alive, name)
			}
		}
	}
	for user, want := range map[string][]string{users[1].String(): alive, uuid.NewString(): nil} {
		for _, size := range []int32{0, 1, 2, 9, 200} {
			var got []string
			req := videov1.ListEngagementsRequest{PageSize: size, UserId: user}
			for more := true; more; more = req.PageToken != "" {
				page, err := a.engage.ListEngagements(t.Context(), &req)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range page.GetEngagements() {
					got = append(got, e.GetUserId()+":"+e.GetVideoId())
				}
				req.PageToken = page.GetNextPageToken()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("those of %s in pages of %d (-want +got):\n%s", user, size, diff)
			}
		}
	}
	slices.Reverse(all) // the list of all users, for replicas, ascends
	page, err := a.replica.ListEngagementRows(t.Context(), &replicationv1.ListEngagementRowsRequest{})
	if err != nil || page.GetNext() != "" {
		t.Fatalf("%v, %v", page, err)
	}
	var listed []string
	for _, e := range page.GetEngagements() {
		listed = append(listed, e.GetUserId()+":"+e.GetVideoId())
	}
	if diff := cmp.Diff(all, listed); diff != "" {
		t.Errorf("those of all users (-want +got):\n%s", diff)
	}
}

func TestHostileEngagements(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v, user := a.create(), uuid.New()
	good := engaged(user, v)
	a.call("PUT", good, `{"liked": true}`, "Idempotency-Key", "used").engagement(t)
	a.refuses([]hostile{
		{"empty body", "PUT", good, "", nil, 400, "body"},
		{"null", "PUT", good, `null`, nil, 400, "body"},
		{"array", "PUT", good, `[]`, nil, 400, "body"},
		{"merge patch", "PUT", good, `{}`, []string{"Content-Type", "application/merge-patch+json"}, 415, "body"},
		{"oversize", "PUT", good, strings.Repeat(" ", 3<<20), nil, 413, "body"},
		{"number as liked", "PUT", good, `{"liked": 1}`, nil, 400, "liked"},
		{"null as liked", "PUT", good, `{"liked": null}`, nil, 400, "liked"},
		{"text as bookmarked", "PUT", good, `{"bookmarked": "true"}`, nil, 400, "bookmarked"},
		{"null as bookmarked", "PUT", good, `{"bookmarked": null}`, nil, 400, "bookmarked"},
		{"negative seconds", "PUT", good, `{"watched_seconds": -1}`, nil, 400, "watched_seconds"},
		{"half seconds", "PUT", good, `{"watched_seconds": 1.5}`, nil, 400, "watched_seconds"},
		{"a century of seconds", "PUT", good, `{"watched_seconds": 3155760000}`, nil, 400, "watched_seconds"},
		{"seconds over 64 bits", "PUT", good, `{"watched_seconds": 9223372036854775808}`, nil, 400, "watched_seconds"},
		{"null as seconds", "PUT", good, `{"watched_seconds": null}`, nil, 400, "watched_seconds"},
		{"field twice", "PUT", good, `{"liked": true, "liked": true}`, nil, 400, "liked"},
		{"field in other case", "PUT", good, `{"Liked": true}`, nil, 400, "Liked"},
		{"unknown field", "PUT", good, `{"rating": 5}`, nil, 400, "rating"},
		{"own version", "PUT", good, `{"version": 5}`, nil, 400, "version"},
		{"own user", "PUT", good, `{"user_id": "` + uuid.NewString() + `"}`, nil, 400, "user_id"},
		{"unknown parameter", "PUT", good + "?liked=true", `{}`, nil, 400, "liked"},
		{"bad user", "PUT", "/v1/users/me/engagements/" + v.ID.String(), `{}`, nil, 400, "user_id"},
		{"nil user", "PUT", engaged(uuid.Nil, v), `{}`, nil, 400, "user_id"},
		{"user in braces", "PUT", "/v1/users/%7B" + user.String() + "%7D/engagements/" + v.ID.String(), `{}`, nil, 400, "user_id"},
		{"bad video", "PUT", "/v1/users/" + user.String() + "/engagements/x", `{}`, nil, 400, "video_id"},
		{"colon in a video", "PUT", "/v1/users/" + user.String() + "/engagements/" + user.String() + ":" + v.ID.String(), `{}`, nil, 400, "video_id"},
		{"no video", "PUT", "/v1/users/" + user.String() + "/engagements/", `{}`, nil, 404, ""},
		{"weak If-Match", "PUT", good, `{}`, []string{"If-Match", `W/"1"`}, 412, ""},
		{"stale If-Match", "PUT", good, `{}`, []string{"If-Match", `"2"`}, 412, ""},
		{"If-None-Match", "PUT", good, `{}`, []string{"If-None-Match", `*`}, 400, "If-None-Match"},
		{"empty key", "PUT", good, `{}`, []string{"Idempotency-Key", ""}, 400, "Idempotency-Key"},
		{"used key", "PUT", good, `{}`, []string{"Idempotency-Key", "used"}, 422, "Idempotency-Key"},
		{"deletion of a bad user", "DELETE", "/v1/users/me/engagements/" + v.ID.String(), nil, nil, 400, "user_id"},
		{"deletion with a reason", "DELETE", good + "?reason=x", nil, nil, 400, "reason"},
		{"deletion with a field", "DELETE", good, `{"x": 1}`, nil, 400, "x"},
		{"deletion with an array", "DELETE", good, `[]`, nil, 400, "body"},
		{"deletion with a form", "DELETE", good, "x=1", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "body"},
		{"deletion of none", "DELETE", engaged(uuid.New(), v), nil, nil, 404, ""},
		{"deletion of another version", "DELETE", good, nil, []string{"If-Match", `"2"`}, 412, ""},
		{"unknown method", "PATCH", good, `{}`, nil, 405, ""},
	})
}

func TestHostileEngagementsOverGRPC(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	user, id := uuid.NewString(), v.ID.String()
	put := func(req *videov1.PutEngagementRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := a.engage.PutEngagement(ctx, req); return err }
	}
	remove := func(req *videov1.DeleteEngagementRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := a.engage.DeleteEngagement(ctx, req); return err }
	}
	get := func(req *videov1.GetEngagementRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := a.engage.GetEngagement(ctx, req); return err }
	}
	list := func(req *videov1.ListEngagementsRequest) func(context.Context) error {
		return func(ctx context.Context) error { _, err := a.engage.ListEngagements(ctx, req); return err }
	}
	_, err := a.engage.ListEngagements(t.Context(), &videov1.ListEngagementsRequest{UserId: "x", PageSize: -1, PageToken: "x"})
	if got, want := violations(err), []string{"user_id", "page_size", "page_token"}; !slices.Equal(got, want) {
		t.Errorf("three faults of a list: %v, want %v", got, want)
	}
	before := a.rows()
	for name, test := range map[string]struct {
		call  func(context.Context) error
		code  codes.Code
		field string
	}{
		"no user":                   {put(&videov1.PutEngagementRequest{VideoId: id}), codes.InvalidArgument, "user_id"},
		"nil user":                  {put(&videov1.PutEngagementRequest{UserId: uuid.Nil.String(), VideoId: id}), codes.InvalidArgument, "user_id"},
		"no video":                  {put(&videov1.PutEngagementRequest{UserId: user}), codes.InvalidArgument, "video_id"},
		"unknown video":             {put(&videov1.PutEngagementRequest{UserId: user, VideoId: user}), codes.NotFound, ""},
		"negative seconds":          {put(&videov1.PutEngagementRequest{UserId: user, VideoId: id, WatchedSeconds: -1}), codes.InvalidArgument, "watched_seconds"},
		"endless seconds":           {put(&videov1.PutEngagementRequest{UserId: user, VideoId: id, WatchedSeconds: 1<<63 - 1}), codes.InvalidArgument, "watched_seconds"},
		"negative version":          {put(&videov1.PutEngagementRequest{UserId: user, VideoId: id, ExpectedVersion: -1}), codes.InvalidArgument, "expected_version"},
		"version of none":           {put(&videov1.PutEngagementRequest{UserId: user, VideoId: id, ExpectedVersion: 1}), codes.Aborted, ""},
		"deletion of none":          {remove(&videov1.DeleteEngagementRequest{UserId: user, VideoId: id}), codes.NotFound, ""},
		"deletion without a user":   {remove(&videov1.DeleteEngagementRequest{VideoId: id}), codes.InvalidArgument, "user_id"},
		"deletion, negative":        {remove(&videov1.DeleteEngagementRequest{UserId: user, VideoId: id, ExpectedVersion: -1}), codes.InvalidArgument, "expected_version"},
		"get without a user":        {get(&videov1.GetEngagementRequest{VideoId: id}), codes.InvalidArgument, "user_id"},
		"get of a bad video":        {get(&videov1.GetEngagementRequest{UserId: user, VideoId: "x"}), codes.InvalidArgument, "video_id"},
		"list of no user":           {list(&videov1.ListEngagementsRequest{}), codes.InvalidArgument, "user_id"},
		"list of a bad user":        {list(&videov1.ListEngagementsRequest{UserId: "x"}), codes.InvalidArgument, "user_id"},
		"list, negative page":       {list(&videov1.ListEngagementsRequest{UserId: user, PageSize: -1}), codes.InvalidArgument, "page_size"},
		"list, huge page":           {list(&videov1.ListEngagementsRequest{UserId: user, PageSize: 201}), codes.InvalidArgument, "page_size"},
		"list, garbage for a token": {list(&videov1.ListEngagementsRequest{UserId: user, PageToken: "x"}), codes.InvalidArgument, "page_token"},
	} {
		err := test.call(t.Context())
		if status.Code(err) != test.code || test.field != "" && !slices.Contains(violations(err), test.field) {
			t.Errorf("%s: %v, want %s naming %q", name, err, test.code, test.field)
		}
	}
	if after := a.rows(); after != before {
		t.Errorf("rows %+v became %+v", before, after)
	}
}

// Engagements are read by their user and by admins. Other services have the replication
// service.
func TestEngagementsAreReadByTheirUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.liked()
	nameless := auth.Principal{Kind: auth.User, Tenant: eventing.DefaultTenant}
	for who, caller := range map[string]auth.Principal{
		"owner": owner, "stranger": stranger, "admin": admin, "service": replica, "everyone": everyone, "anonymous": {Tenant: eventing.DefaultTenant}, "nil": nameless,
	} {
		_, _, get := a.engagements.Get(t.Context(), caller, owner.User, v.ID)
		_, _, list := a.engagements.List(t.Context(), caller, owner.User, 1, "", nil)
		want := "PERMISSION_DENIED"
		switch who {
		case "owner", "admin", "everyone":
			want = ""
		}
		if diff := cmp.Diff([]string{want, want}, []string{reasonOf(get), reasonOf(list)}); diff != "" {
			t.Errorf("get, list by %s (-want +got):\n%s", who, diff)
		}
	}
}

// A list without a user would be one of all users.
func TestListsOfAllUsersAreForReplicas(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	v := a.create()
	a.call("PUT", engaged(uuid.New(), v), `{"liked": true}`).engagement(t)
	resp, err := a.engage.ListEngagements(t.Context(), &videov1.ListEngagementsRequest{})
	if status.Code(err) != codes.InvalidArgument || !slices.Equal(violations(err), []string{"user_id"}) {
		t.Errorf("%v, %v", resp, err)
	}
}
