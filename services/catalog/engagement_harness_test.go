package catalog

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

// addForgedEngagements adds the reads of TestAForgedTokenCostsTheOwnerOneRead about engagements.
func addForgedEngagements(
	t *testing.T, reads map[string]func() bool, client catalogv1.CatalogServiceClient, rest func(path, token string) func() bool,
) {
	t.Helper()
	user := uuid.NewString()
	var likes []consistency.Position
	for range consistency.MaxPositions {
		id := user + ":" + newVideoID().String()
		likes = append(likes, consistency.Position{AggregateType: engagementType, AggregateID: id, Epoch: 1, Version: 7})
	}
	reads["a user's list over REST"] = rest("/v1/users/"+user+"/engagements", tokenOf(likes...))
	reads["a user's list over gRPC"] = func() bool {
		_, err := client.ListUserEngagements(t.Context(),
			&catalogv1.ListUserEngagementsRequest{UserId: user, AtLeastAsFresh: tokenOf(likes...), Wait: durationpb.New(0)})
		return problem.ReasonOf(err) == "TOKEN_AHEAD"
	}
}

// engaged makes an engagement of version 1, and returns its video.
func (f *fixture) engaged(t testing.TB, user, video uuid.UUID) uuid.UUID {
	t.Helper()
	f.must(t, inbox.Applied, like{user, video}.put(1))
	return video
}

// withEngagements adds an engagement at version 2 to a fuzzed catalog, whose owner has version 3,
// and what FuzzTokens reads and names of engagements.
func (f *fixture) withEngagements(
	tb testing.TB, reads []fuzzedRead, nowhere []consistency.Position,
) ([]fuzzedRead, []consistency.Position) {
	tb.Helper()
	l := like{uploader, uuid.MustParse("0190a5d0-0000-7000-8000-000000000002")}
	f.must(tb, inbox.Applied, l.put(1), l.put(2))
	f.peer.hasLike(l.owners(3))
	return append(reads, fuzzedRead{"/v1/users/" + l.user.String() + "/engagements", l.position}),
		append(nowhere, newLike().position(1), like{l.user, newVideoID()}.position(1))
}

// fuzzedEngagement makes an engagement of version 1, and returns the seeds of FuzzEvents about it.
func (f *fixture) fuzzedEngagement(tb testing.TB) []eventing.Event {
	tb.Helper()
	l := like{uploader, uuid.MustParse("0190a5d0-0000-7000-8000-000000000002")}
	f.must(tb, inbox.Applied, l.put(1))
	return []eventing.Event{l.put(2), l.deleted(2)}
}

func agreeingEngagement(data []byte, aggregate, key string, version int64) proto.Message {
	e := &engagementv1.Event{}
	if proto.Unmarshal(data, e) != nil {
		return nil
	}
	e.EventId, e.AggregateType, e.AggregateId, e.Version = uuid.Max.String(), aggregate, key, version
	user, video, _ := strings.Cut(key, ":")
	if p := e.GetPut(); p != nil {
		p.UserId, p.VideoId, p.Version = user, video, version
	}
	if p := e.GetDeleted(); p != nil {
		p.UserId, p.VideoId, p.Version = user, video, version
	}
	return e
}

func (p *peer) GetEngagementRows(
	ctx context.Context, req *replicationv1.GetEngagementRowsRequest,
) (*replicationv1.GetEngagementRowsResponse, error) {
	resp := &replicationv1.GetEngagementRowsResponse{}
	err := p.answer(ctx, func(asOf *timestamppb.Timestamp, epoch int64) {
		resp.AsOf, resp.Epoch = asOf, epoch
		for _, id := range req.GetVideoIds() {
			if e := p.likes[req.GetUserId()+":"+id]; e != nil {
				resp.Engagements = append(resp.Engagements, e)
			}
		}
	})
	return resp, err
}

func (p *peer) hasLike(e *videov1.Engagement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.likes[e.GetUserId()+":"+e.GetVideoId()] = e
}

func (f *fixture) listsEngagements(ctx context.Context, t *testing.T) {
	t.Helper()
	q := EngagementQuery{Caller: everyone, UserID: uuid.NewString()}
	if _, err := f.service.ListEngagements(ctx, q, consistency.Requirement{}); err != nil {
		t.Errorf("a list of engagements: %v", err)
	}
}

var engagementStore = store[Engagement]{
	Rows: engagements{}, table: "video_user_engagements_projection", marked: "watched_seconds", id: Engagement.id,
	row: func(n int, version, mark int64) Engagement {
		return Engagement{
			UserID: uploader, VideoID: key(n), WatchedSeconds: mark,
			Versioned: Versioned{Version: version, Epoch: 1, CreatedAt: atp(1), UpdatedAt: at(version)},
		}
	},
}
