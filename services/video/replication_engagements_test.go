package video

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// The tests of replication_test.go, of engagements.

func (a *api) listEngagements(from string) []*videov1.Engagement {
	a.Helper()
	resp, err := a.replica.ListEngagementRows(a.Context(), &replicationv1.ListEngagementRowsRequest{From: from})
	if err != nil || resp.GetNext() != "" || resp.GetAsOf() == nil {
		a.Fatalf("%v, %v", resp, err)
	}
	return resp.GetEngagements()
}

func TestEngagementRowsAreWhole(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	kept, deleted := a.create(), a.create()
	user := uuid.New()
	a.call("PUT", engaged(user, kept), `{"liked": true}`)
	a.deletedEngagement(user.String(), deleted.ID.String())
	rows := a.listEngagements(user.String() + ":" + uuid.Nil.String())
	if len(rows) != 2 {
		t.Fatalf("%v, want 2", rows)
	}
	for _, row := range rows {
		one := a.engagementRows(user.String(), row.GetVideoId())
		if !proto.Equal(row, only(t, one.GetEngagements())) || row.GetLastEventId() == "" || row.GetEpoch() != 1 {
			t.Errorf("listed %v, got %v", row, one)
		}
	}
	_, err := a.replica.ListEngagementRows(t.Context(), &replicationv1.ListEngagementRowsRequest{From: uuid.Nil.String()})
	if status.Code(err) != codes.InvalidArgument || !slices.Contains(violations(err), "from, until") {
		t.Errorf("from the id of a video: %v", err)
	}
}

func TestReadsOfManyEngagements(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	here, gone, user := a.create(), a.create(), uuid.New()
	a.call("PUT", engaged(user, here), `{"liked": true}`)
	a.deletedEngagement(user.String(), gone.ID.String())
	ids := []string{uuid.NewString(), here.ID.String(), gone.ID.String(), here.ID.String()}
	likes := a.engagementRows(user.String(), ids...).GetEngagements()
	for _, e := range likes {
		if deleted := e.GetVideoId() == gone.ID.String(); deleted != (e.DeletedAt != nil) || e.GetUserId() != user.String() {
			t.Errorf("%v", e)
		}
	}
	if len(likes) != 2 {
		t.Errorf("%d engagements, want 2", len(likes))
	}
	for name, req := range map[string]*replicationv1.GetEngagementRowsRequest{
		"none": {UserId: user.String()}, "no id": {UserId: user.String(), VideoIds: []string{"x"}},
		"too many": {UserId: user.String(), VideoIds: slices.Repeat(ids[:1], 33)}, "no user": {VideoIds: ids[:1]},
	} {
		if _, err := a.replica.GetEngagementRows(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if none := a.engagementRows(ids[0], ids[0]); len(none.GetEngagements()) > 0 || none.GetEpoch() != 1 || none.GetAsOf() == nil {
		t.Errorf("of none: %v; want the state of the database", none)
	}
}

func TestEngagementRowsWithOddTimes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.exec(`INSERT INTO video.engagements (user_id, video_id, liked, bookmarked, watched_seconds, version, created_at, updated_at)
		SELECT gen_random_uuid(), gen_random_uuid(), true, false, 0, 1, now(), 'infinity' FROM generate_series(1, 3)`)
	rows := a.listEngagements("")
	if len(rows) != 3 {
		t.Fatalf("%v, want 3", rows)
	}
	for _, row := range rows {
		likes := a.engagementRows(row.GetUserId(), row.GetVideoId()).GetEngagements()
		if row.GetUpdatedAt().AsTime().Format("2006-01-02") != "9999-12-31" || len(likes) != 1 || !proto.Equal(likes[0], row) {
			t.Errorf("listed %v, by its id %v", row, likes)
		}
	}
}
