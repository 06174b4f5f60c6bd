package video

import (
	"cmp"
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	videov1 "example.com/lockstep/proto/video/v1"
)

// engagementServer is the API of engagements.
type engagementServer struct {
	videov1.UnimplementedEngagementServiceServer
	service *Service
}

func (g engagementServer) PutEngagement(ctx context.Context, req *videov1.PutEngagementRequest) (*videov1.PutEngagementResponse, error) {
	w := callWrite(ctx, req.GetExpectedVersion())
	user, video := engagementName(req.GetUserId(), req.GetVideoId(), &w.bad)
	a, err := g.service.PutEngagement(ctx, Engagement{
		UserID: user, VideoID: video, Liked: req.GetLiked(), Bookmarked: req.GetBookmarked(), WatchedSeconds: req.GetWatchedSeconds(),
	}, w)
	if err != nil {
		return nil, err
	}
	return &videov1.PutEngagementResponse{Engagement: a.Is.proto(), ConsistencyToken: token(a.Is.position())}, sayReplayed(ctx, a.Replayed)
}

func (g engagementServer) DeleteEngagement(
	ctx context.Context, req *videov1.DeleteEngagementRequest,
) (*videov1.DeleteEngagementResponse, error) {
	w := callWrite(ctx, req.GetExpectedVersion())
	user, video := engagementName(req.GetUserId(), req.GetVideoId(), &w.bad)
	a, err := g.service.DeleteEngagement(ctx, user, video, w)
	if err != nil {
		return nil, err
	}
	return &videov1.DeleteEngagementResponse{
		UserId: req.GetUserId(), VideoId: req.GetVideoId(), Version: a.Is.Version, DeletedAt: pbtime.Proto(a.Is.DeletedAt),
		ConsistencyToken: token(a.Is.position()),
	}, sayReplayed(ctx, a.Replayed)
}

func (g engagementServer) GetEngagement(ctx context.Context, req *videov1.GetEngagementRequest) (*videov1.GetEngagementResponse, error) {
	var bad problem.Faults
	user, video := engagementName(req.GetUserId(), req.GetVideoId(), &bad)
	if err := bad.Err(); err != nil {
		return nil, err
	}
	e, asOf, err := g.service.GetEngagementAsOf(ctx, user, video, req.GetIncludeDeleted())
	if err != nil {
		return nil, lackedAsOf(err, asOf)
	}
	return &videov1.GetEngagementResponse{Engagement: e.read(), AsOf: pbtime.Proto(asOf)}, nil
}

func (g engagementServer) GetEngagements(
	ctx context.Context, req *videov1.GetEngagementsRequest,
) (*videov1.GetEngagementsResponse, error) {
	var bad problem.Faults
	user := bad.UUID("user_id", req.GetUserId())
	if err := bad.Err(); err != nil {
		return nil, err
	}
	found, asOf, err := g.service.GetEngagements(ctx, user, req.GetVideoIds())
	if err != nil {
		return nil, err
	}
	resp := &videov1.GetEngagementsResponse{AsOf: pbtime.Proto(asOf)}
	for _, e := range found {
		resp.Engagements = append(resp.Engagements, e.read())
	}
	return resp, nil
}

func (g engagementServer) ListEngagements(
	ctx context.Context, req *videov1.ListEngagementsRequest,
) (*videov1.ListEngagementsResponse, error) {
	f := EngagementFilter{IncludeDeleted: req.GetIncludeDeleted()}
	if req.GetUserId() != "" {
		var bad problem.Faults
		f.UserID = bad.UUID("user_id", req.GetUserId())
		if err := bad.Err(); err != nil {
			return nil, err
		}
	}
	found, next, err := g.service.ListEngagements(ctx, f, cmp.Or(int(req.GetPageSize()), rest.DefaultPageSize), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &videov1.ListEngagementsResponse{NextPageToken: next}
	for _, e := range found {
		resp.Engagements = append(resp.Engagements, e.read())
	}
	return resp, nil
}

func (e Engagement) proto() *videov1.Engagement {
	return &videov1.Engagement{
		UserId: e.UserID.String(), VideoId: e.VideoID.String(), Liked: e.Liked, Bookmarked: e.Bookmarked,
		WatchedSeconds: e.WatchedSeconds, Version: e.Version, CreatedAt: timestamppb.New(e.CreatedAt),
		UpdatedAt: timestamppb.New(e.UpdatedAt), DeletedAt: pbtime.Proto(e.DeletedAt), Epoch: eventing.Epoch,
	}
}

// read is as for videos.
func (e Engagement) read() *videov1.Engagement {
	p := e.proto()
	p.LastEventId = eventText(e.LastEventID)
	return p
}
