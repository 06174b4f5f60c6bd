package catalog

import (
	"cmp"
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// grpcServer is the gRPC API of proto/catalog/v1.
type grpcServer struct {
	catalogv1.UnimplementedCatalogServiceServer
	service *Service
}

func (g grpcServer) GetVideo(ctx context.Context, req *catalogv1.GetVideoRequest) (*catalogv1.GetVideoResponse, error) {
	var found problem.Violations
	id := found.UUID("video_id", req.GetVideoId())
	required, err := VideoRequirement(requestOf(ctx, req, &found))
	if err = found.Take(err); err == nil {
		err = found.Err()
	}
	if err != nil {
		return nil, err
	}
	a, err := g.service.Get(ctx, auth.Of(ctx), id, required)
	err = cmp.Or(err, grpc.SetHeader(ctx, metadata.New(a.metadata())))
	if err != nil {
		return nil, err
	}
	return &catalogv1.GetVideoResponse{Video: a.proto(), Source: a.Source.proto(), Stale: protoStale(a.Stale)}, nil
}

func (g grpcServer) ListVideos(ctx context.Context, req *catalogv1.ListVideosRequest) (*catalogv1.ListVideosResponse, error) {
	var found problem.Violations
	required, err := VideoRequirement(requestOf(ctx, req, &found))
	if err := found.Take(err); err != nil {
		return nil, err
	}
	page, err := g.service.List(ctx, Query{
		UploaderID: req.GetUploaderId(), Title: req.GetQ(), PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(),
		Caller: auth.Of(ctx), Found: found,
	}, required)
	if err != nil {
		return nil, err
	}
	resp := &catalogv1.ListVideosResponse{NextPageToken: page.Next, Source: page.Source.proto(), Stale: protoStale(page.Stale)}
	for _, v := range page.Videos {
		resp.Videos = append(resp.Videos, v.proto())
	}
	return resp, grpc.SetHeader(ctx, metadata.Pairs("consistency-source", string(page.Source)))
}

var modes = map[catalogv1.Consistency]consistency.Mode{
	catalogv1.Consistency_CONSISTENCY_UNSPECIFIED:       "",
	catalogv1.Consistency_CONSISTENCY_MINIMIZE_LATENCY:  consistency.MinimizeLatency,
	catalogv1.Consistency_CONSISTENCY_AT_LEAST_AS_FRESH: consistency.AtLeastAsFresh,
	catalogv1.Consistency_CONSISTENCY_FULLY_CONSISTENT:  consistency.FullyConsistent,
}

// requestOf returns the freshness that req asks for, whatever its type, and adds the faults to found. It
// validates the field wait even if req has no token to wait for.
func requestOf(ctx context.Context, req interface {
	GetAtLeastAsFresh() string
	GetWait() *durationpb.Duration
	GetConsistency() catalogv1.Consistency
	GetStaleIfError() bool
}, found *problem.Violations,
) consistency.Request {
	mode, known := modes[req.GetConsistency()]
	found.Require(known, "consistency", "is not a known value")
	request := consistency.Request{
		Tenant: auth.Of(ctx).Tenant, Token: req.GetAtLeastAsFresh(),
		Mode: mode, StaleIfError: req.GetStaleIfError(), Wait: consistency.DefaultWait,
	}
	request.TokenField, request.ModeField = "at_least_as_fresh", "consistency"
	if wait := req.GetWait(); wait != nil {
		request.Wait = wait.AsDuration()
		found.Require(wait.CheckValid() == nil && request.Wait >= 0, "wait", "must be a valid duration, and not negative")
	}
	return request
}

func protoStale(stale []consistency.StaleAggregate) (out []*catalogv1.Lag) {
	for _, l := range stale {
		out = append(out, &catalogv1.Lag{Id: l.ID, Version: l.Version, AtLeast: l.AtLeast})
	}
	return out
}

func (v Video) proto() *catalogv1.Video {
	return &catalogv1.Video{
		VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Title: v.Title, Description: v.Description,
		DurationSeconds: v.DurationSeconds, PublishedAt: timestamp(v.PublishedAt), Version: v.Version,
		CreatedAt: timestamp(v.CreatedAt), UpdatedAt: timestamppb.New(v.UpdatedAt),
		LikeCount: v.LikeCount, BookmarkCount: v.BookmarkCount, TotalWatchedSeconds: v.TotalWatchedSeconds,
	}
}

func (s Source) proto() catalogv1.Source {
	if s == SourceAuthority {
		return catalogv1.Source_SOURCE_AUTHORITY
	}
	return catalogv1.Source_SOURCE_PROJECTION
}
