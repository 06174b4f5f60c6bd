package video

import (
	"context"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/pkg/eventing/consistency"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	"example.com/lockstep/services/video/aggregate"
	"example.com/lockstep/services/video/engagement"
)

func engaged(user uuid.UUID, v Video) string {
	return "/v1/users/" + user.String() + "/engagements/" + v.ID.String()
}

// engagementRows are likewise a user's engagements with videos.
func (a *api) engagementRows(user string, videos ...string) *replicationv1.GetEngagementRowsResponse {
	a.Helper()
	resp, err := a.replica.GetEngagementRows(a.Context(), &replicationv1.GetEngagementRowsRequest{UserId: user, VideoIds: videos})
	if err != nil {
		a.Fatal(err)
	}
	return resp
}

// liked is owned, with owner's like.
func (a *api) liked() Video {
	a.Helper()
	v := a.owned()
	like := engagement.Engagement{UserID: owner.User, VideoID: v.ID, Liked: true}
	if _, err := a.engagements.Put(a.Context(), like, by(owner), nil); err != nil {
		a.Fatal(err)
	}
	return v
}

// newEngagement is the path of an engagement of a new user with a video, or with none.
func newEngagement(video string) string {
	if video == "" {
		video = uuid.NewString()
	}
	return "/v1/users/" + uuid.NewString() + "/engagements/" + video
}

// likedIn is the path of an engagement with the video, which was put in that epoch.
func (a *api) likedIn(epoch int64, video string) (path string) {
	a.Helper()
	path = newEngagement(video)
	token, err := consistency.Parse(a.call("PUT", path, `{"liked": true}`).Header.Get("Consistency-Token"))
	if err != nil || len(token.Positions) != 1 || token.Positions[0].Epoch != epoch {
		a.Fatalf("token %+v, %v; want epoch %d", token, err, epoch)
	}
	return path
}

// deletedEngagement is one that was put and deleted.
func (a *api) deletedEngagement(user, video string) {
	a.Helper()
	path := "/v1/users/" + user + "/engagements/" + video
	a.call("PUT", path, `{"liked": true}`).engagement(a)
	if r := a.call("DELETE", path, nil); r.Status != http.StatusOK {
		a.Fatalf("%d %s", r.Status, r.Raw)
	}
}

// addEngagementWrites adds the writes of engagements by a caller.
func (a *api) addEngagementWrites(writes map[string]func(v Video, o aggregate.WriteOptions) error) {
	writes["put an engagement"] = func(v Video, o aggregate.WriteOptions) error {
		_, err := a.engagements.Put(a.Context(), engagement.Engagement{UserID: owner.User, VideoID: v.ID}, o, nil)
		return err
	}
	writes["delete an engagement"] = func(v Video, o aggregate.WriteOptions) error {
		_, err := a.engagements.Delete(a.Context(), owner.User, v.ID, o, nil)
		return err
	}
}

// engagementPage is a page with one of owner's engagements.
func (a *api) engagementPage(caller auth.Principal, token string) (next string, err error) {
	_, next, err = a.engagements.List(a.Context(), caller, owner.User, 1, token, nil)
	return next, err
}

// putEngagement puts one user's engagement with a video.
func (s services) putEngagement(ctx context.Context, video uuid.UUID, watched int64) error {
	e := engagement.Engagement{UserID: owner.User, VideoID: video, WatchedSeconds: watched}
	_, err := s.engagements.Put(ctx, e, aggregate.WriteOptions{Caller: everyone}, nil)
	return err
}

// engagementTrips is the part of TestRoundTrips about engagements.
func engagementTrips(t *testing.T, s services, id uuid.UUID, seen *trips) {
	t.Helper()
	like := engagement.Engagement{UserID: uuid.New(), VideoID: id, Liked: true}
	for name, write := range map[string]func(aggregate.WriteOptions) (aggregate.Result[engagement.Engagement], error){
		"put": func(w aggregate.WriteOptions) (aggregate.Result[engagement.Engagement], error) {
			return s.engagements.Put(t.Context(), like, w, nil)
		},
		"delete": func(w aggregate.WriteOptions) (aggregate.Result[engagement.Engagement], error) {
			return s.engagements.Delete(t.Context(), like.UserID, id, w, nil)
		},
	} {
		if _, err := s.engagements.Put(t.Context(), engagement.Engagement{UserID: like.UserID, VideoID: id}, aggregate.WriteOptions{Caller: everyone}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := write(aggregate.WriteOptions{Caller: everyone, Keys: []string{"first-" + name}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.engagements.Put(t.Context(), engagement.Engagement{UserID: like.UserID, VideoID: id}, aggregate.WriteOptions{Caller: everyone}, nil); err != nil {
			t.Fatal(err)
		}
		seen.take()
		if _, err := write(aggregate.WriteOptions{Caller: everyone, Keys: []string{name}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"batch", "batch"}, seen.take()); diff != "" {
			t.Errorf("%s of an engagement (-want +got):\n%s", name, diff)
		}
	}
}
