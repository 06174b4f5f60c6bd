package catalog

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/problem"
	catalogv1 "example.com/lockstep/proto/catalog/v1"
)

// grpcServer is the gRPC API of proto/catalog/v1.
type grpcServer struct {
	catalogv1.UnimplementedCatalogServiceServer
	service *Service
}

func (g grpcServer) GetVideo(ctx context.Context, req *catalogv1.GetVideoRequest) (*catalogv1.GetVideoResponse, error) {
	id, err := parseID(req.GetVideoId())
	if err != nil {
		return nil, problem.Invalid("video_id", err.Error())
	}
	read, err := demanded(req.GetAtLeastAsFresh(), req.GetWait())
	if err != nil {
		return nil, err
	}
	v, source, err := g.service.Get(ctx, id, read)
	if err != nil {
		return nil, err
	}
	return &catalogv1.GetVideoResponse{Video: v.proto(), Source: source.proto()}, nil
}

func (g grpcServer) ListVideos(ctx context.Context, req *catalogv1.ListVideosRequest) (*catalogv1.ListVideosResponse, error) {
	read, err := demanded(req.GetAtLeastAsFresh(), req.GetWait())
	if err != nil {
		return nil, err
	}
	page, err := g.service.List(ctx, Query{
		UploaderID: req.GetUploaderId(), Title: req.GetQ(), PageSize: int(req.GetPageSize()), PageToken: req.GetPageToken(),
	}, read)
	if err != nil {
		return nil, err
	}
	resp := &catalogv1.ListVideosResponse{NextPageToken: page.Next, Source: page.Source.proto()}
	for _, v := range page.Videos {
		resp.Videos = append(resp.Videos, v.proto())
	}
	return resp, nil
}

// demanded checks wait also where there is no token that it could be for.
func demanded(token string, wait *durationpb.Duration) (Read, error) {
	d := defaultWait
	if wait != nil {
		d = wait.AsDuration()
		if wait.CheckValid() != nil || d < 0 {
			return Read{}, problem.Invalid("wait", "must be a valid duration, and not negative")
		}
	}
	if token == "" {
		return Read{}, nil
	}
	return NewRead(token, "at_least_as_fresh", d)
}

func (v Video) proto() *catalogv1.Video {
	return &catalogv1.Video{
		VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Title: v.Title, Description: v.Description,
		DurationSeconds: v.DurationSeconds, PublishedAt: pbtime.Proto(v.PublishedAt), Version: v.Version,
		CreatedAt: pbtime.Proto(v.CreatedAt), UpdatedAt: timestamppb.New(v.UpdatedAt),
	}
}

func (s Source) proto() catalogv1.Source {
	if s == SourceAuthority {
		return catalogv1.Source_SOURCE_AUTHORITY
	}
	return catalogv1.Source_SOURCE_PROJECTION
}
