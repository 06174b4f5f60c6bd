package catalog

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

func (g grpcServer) ListUserEngagements(
	ctx context.Context, req *catalogv1.ListUserEngagementsRequest,
) (*catalogv1.ListUserEngagementsResponse, error) {
	var found problem.Violations
	required, err := EngagementRequirement(requestOf(ctx, req, &found))
	if err := found.Take(err); err != nil {
		return nil, err
	}
	page, err := g.service.ListEngagements(ctx, EngagementQuery{
		UserID: req.GetUserId(), PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(), Caller: auth.Of(ctx), Found: found,
	}, required)
	if err != nil {
		return nil, err
	}
	resp := &catalogv1.ListUserEngagementsResponse{NextPageToken: page.Next, Source: page.Source.proto(), Stale: protoStale(page.Stale)}
	for _, e := range page.Engagements {
		resp.Engagements = append(resp.Engagements, e.proto())
	}
	return resp, grpc.SetHeader(ctx, metadata.Pairs("consistency-source", string(page.Source)))
}

func (e Engagement) proto() *catalogv1.Engagement {
	return &catalogv1.Engagement{
		UserId: e.UserID.String(), VideoId: e.VideoID.String(), Liked: e.Liked, Bookmarked: e.Bookmarked,
		WatchedSeconds: e.WatchedSeconds, Version: e.Version, CreatedAt: timestamp(e.CreatedAt), UpdatedAt: timestamppb.New(e.UpdatedAt),
	}
}
