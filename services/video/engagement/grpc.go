package engagement

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// grpcServer is the EngagementService of proto/video/v1.
type grpcServer struct {
	videov1.UnimplementedEngagementServiceServer
	service *Service
}

// RegisterGRPC adds the EngagementService to a server.
func RegisterGRPC(r grpc.ServiceRegistrar, s *Service) {
	videov1.RegisterEngagementServiceServer(r, grpcServer{service: s})
}

func (g grpcServer) PutEngagement(ctx context.Context, req *videov1.PutEngagementRequest) (*videov1.PutEngagementResponse, error) {
	var found problem.Violations
	options := aggregate.CallOptions(ctx, req.GetExpectedVersion(), &found)
	user, video := parseIDs(req.GetUserId(), req.GetVideoId(), &found)
	result, err := g.service.Put(ctx, Engagement{
		UserID: user, VideoID: video, Liked: req.GetLiked(), Bookmarked: req.GetBookmarked(), WatchedSeconds: req.GetWatchedSeconds(),
	}, options, found)
	if err != nil {
		return nil, err
	}
	e := result.Value
	return &videov1.PutEngagementResponse{Engagement: e.proto(), ConsistencyToken: e.Token()}, aggregate.SetReplayed(ctx, result.Replayed)
}

func (g grpcServer) DeleteEngagement(
	ctx context.Context, req *videov1.DeleteEngagementRequest,
) (*videov1.DeleteEngagementResponse, error) {
	var found problem.Violations
	options := aggregate.CallOptions(ctx, req.GetExpectedVersion(), &found)
	user, video := parseIDs(req.GetUserId(), req.GetVideoId(), &found)
	result, err := g.service.Delete(ctx, user, video, options, found)
	if err != nil {
		return nil, err
	}
	e := result.Value
	return &videov1.DeleteEngagementResponse{
		UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version, DeletedAt: aggregate.Timestamp(e.DeletedAt),
		ConsistencyToken: e.Token(),
	}, aggregate.SetReplayed(ctx, result.Replayed)
}

func (g grpcServer) GetEngagement(ctx context.Context, req *videov1.GetEngagementRequest) (*videov1.GetEngagementResponse, error) {
	var found problem.Violations
	user, video := parseIDs(req.GetUserId(), req.GetVideoId(), &found)
	aggregate.RefuseTombstones(req, &found)
	if err := found.Err(); err != nil {
		return nil, err
	}
	e, asOf, err := g.service.Get(ctx, auth.Of(ctx), user, video)
	if err != nil {
		return nil, aggregate.WithAsOf(err, asOf)
	}
	return &videov1.GetEngagementResponse{Engagement: e.read(), AsOf: aggregate.Timestamp(asOf.Time)}, nil
}

func (g grpcServer) ListEngagements(
	ctx context.Context, req *videov1.ListEngagementsRequest,
) (*videov1.ListEngagementsResponse, error) {
	var found problem.Violations
	user := found.UUID("user_id", req.GetUserId())
	aggregate.RefuseTombstones(req, &found)
	size := cmp.Or(int(req.GetPageSize()), rest.DefaultPageSize)
	page, next, err := g.service.List(ctx, auth.Of(ctx), user, size, req.GetPageToken(), found)
	if err != nil {
		return nil, err
	}
	return &videov1.ListEngagementsResponse{Engagements: Messages(page), NextPageToken: next}, nil
}

func (e Engagement) proto() *videov1.Engagement {
	return &videov1.Engagement{
		UserId: e.UserID.String(), VideoId: e.VideoID.String(), Liked: e.Liked, Bookmarked: e.Bookmarked,
		WatchedSeconds: e.WatchedSeconds, Version: e.Version, CreatedAt: timestamppb.New(e.CreatedAt),
		UpdatedAt: timestamppb.New(e.UpdatedAt), DeletedAt: aggregate.Timestamp(e.DeletedAt), Epoch: e.Epoch,
	}
}

// read returns e for the answer to a read. It adds the id of the last event and the tenant, which
// replicas store. The answer to a write has neither. It may be stored for a repetition of its
// request, and a stored answer has only the JSON fields.
func (e Engagement) read() *videov1.Engagement {
	p := e.proto()
	p.LastEventId, p.TenantId = e.EventID(), e.TenantID
	return p
}

// Messages returns engagements for the answer to a read.
func Messages(engagements []Engagement) []*videov1.Engagement {
	all := make([]*videov1.Engagement, len(engagements))
	for i, e := range engagements {
		all[i] = e.read()
	}
	return all
}
