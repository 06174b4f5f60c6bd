package video

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	videov1 "example.com/lockstep/proto/video/v1"
	"example.com/lockstep/services/video/aggregate"
)

// grpcServer is the VideoService of proto/video/v1.
type grpcServer struct {
	videov1.UnimplementedVideoServiceServer
	service *Service
}

// registerGRPC adds the VideoService to a server.
func registerGRPC(r grpc.ServiceRegistrar, s *Service) {
	videov1.RegisterVideoServiceServer(r, grpcServer{service: s})
}

// maxMask bounds the number of names in a field mask; a name may be repeated.
const maxMask = 8

// grpcBody has the fields that a caller may write over gRPC. The requests of CreateVideo
// and UpdateVideo both have them.
type grpcBody interface {
	GetTitle() string
	GetDescription() string
	GetDurationSeconds() int64
	GetPublishedAt() *timestamppb.Timestamp
}

// fromGRPC returns a video with the fields of b. If given names published_at, fromGRPC checks the time, and
// adds a fault to found. Service checks the other fields.
func fromGRPC(b grpcBody, given []string, found *problem.Violations) Video {
	v := Video{Title: b.GetTitle(), Description: b.GetDescription(), DurationSeconds: b.GetDurationSeconds()}
	if t := b.GetPublishedAt(); t != nil && slices.Contains(given, "published_at") {
		found.Require(t.IsValid(), "published_at", "must be a valid timestamp")
		v.PublishedAt = new(aggregate.Micros(t.AsTime()))
	}
	return v
}

func (g grpcServer) CreateVideo(ctx context.Context, req *videov1.CreateVideoRequest) (*videov1.CreateVideoResponse, error) {
	var found problem.Violations
	options := aggregate.CallOptions(ctx, 0, &found)
	v := fromGRPC(req, fields, &found)
	v.UploaderID = aggregate.OwnUser(options.Caller)
	if req.GetUploaderId() != "" {
		v.UploaderID = found.UUID(uploaderID, req.GetUploaderId())
	}
	result, err := g.service.Create(ctx, v, options, found)
	if err != nil {
		return nil, err
	}
	v = result.Value
	return &videov1.CreateVideoResponse{Video: v.proto(), ConsistencyToken: v.Token()}, aggregate.SetReplayed(ctx, result.Replayed)
}

// UpdateVideo clears a field that the mask names and the message leaves unset. In REST, null clears
// a field.
func (g grpcServer) UpdateVideo(ctx context.Context, req *videov1.UpdateVideoRequest) (*videov1.UpdateVideoResponse, error) {
	mask := req.GetUpdateMask().GetPaths()
	if len(mask) > maxMask { // before any work is done for each name
		return nil, problem.Invalid("update_mask", fmt.Sprintf("must name at most %d fields", maxMask))
	}
	var found problem.Violations
	options := aggregate.CallOptions(ctx, req.GetExpectedVersion(), &found)
	id := found.UUID("video_id", req.GetVideo().GetVideoId())
	found.Require(len(mask) > 0, "update_mask", "must name a field")
	for _, name := range mask {
		found.Require(slices.Contains(fields, name), "update_mask", "must not name "+name)
	}
	to := fromGRPC(req.GetVideo(), mask, &found)
	result, err := g.service.Update(ctx, id, mask, to, options, found)
	if err != nil {
		return nil, err
	}
	v := result.Value
	return &videov1.UpdateVideoResponse{Video: v.proto(), ConsistencyToken: v.Token()}, aggregate.SetReplayed(ctx, result.Replayed)
}

func (g grpcServer) DeleteVideo(ctx context.Context, req *videov1.DeleteVideoRequest) (*videov1.DeleteVideoResponse, error) {
	var found problem.Violations
	options := aggregate.CallOptions(ctx, req.GetExpectedVersion(), &found)
	id := found.UUID("video_id", req.GetVideoId())
	result, err := g.service.Delete(ctx, id, req.GetReason(), options, found)
	if err != nil {
		return nil, err
	}
	v := result.Value
	return &videov1.DeleteVideoResponse{
		VideoId: v.ID.String(), Version: v.Version, DeletedAt: aggregate.Timestamp(v.DeletedAt), ConsistencyToken: v.Token(),
	}, aggregate.SetReplayed(ctx, result.Replayed)
}

func (g grpcServer) GetVideo(ctx context.Context, req *videov1.GetVideoRequest) (*videov1.GetVideoResponse, error) {
	var found problem.Violations
	id := found.UUID("video_id", req.GetVideoId())
	aggregate.RefuseTombstones(req, &found)
	if err := found.Err(); err != nil {
		return nil, err
	}
	v, asOf, err := g.service.Get(ctx, auth.Of(ctx), id)
	if err != nil {
		return nil, aggregate.WithAsOf(err, asOf)
	}
	return &videov1.GetVideoResponse{Video: v.read(), AsOf: aggregate.Timestamp(asOf.Time)}, nil
}

func (g grpcServer) ListVideos(ctx context.Context, req *videov1.ListVideosRequest) (*videov1.ListVideosResponse, error) {
	var f Filter
	var found problem.Violations
	aggregate.RefuseTombstones(req, &found)
	if req.GetUploaderId() != "" {
		f = uploadedBy(found.UUID("uploader_id", req.GetUploaderId()))
	}
	size := cmp.Or(int(req.GetPageSize()), rest.DefaultPageSize)
	videos, next, err := g.service.List(ctx, auth.Of(ctx), f, size, req.GetPageToken(), found)
	if err != nil {
		return nil, err
	}
	return &videov1.ListVideosResponse{Videos: messages(videos), NextPageToken: next}, nil
}

func (v Video) proto() *videov1.Video {
	return &videov1.Video{
		VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Version: v.Version, CreatedAt: aggregate.Timestamp(&v.CreatedAt),
		UpdatedAt: aggregate.Timestamp(&v.UpdatedAt), DeletedAt: aggregate.Timestamp(v.DeletedAt), Epoch: v.Epoch,
		Title: v.Title, Description: v.Description, DurationSeconds: v.DurationSeconds, PublishedAt: aggregate.Timestamp(v.PublishedAt),
	}
}

// read returns v for the answer to a read. It adds the id of the last event and the tenant, for
// readers that keep a copy. The answer to a write has neither. It may be stored for a repetition of
// its request, and a stored answer has only the JSON fields.
func (v Video) read() *videov1.Video {
	m := v.proto()
	m.LastEventId, m.TenantId = v.EventID(), v.TenantID
	return m
}

// messages returns videos for the answer to a read.
func messages(videos []Video) []*videov1.Video {
	all := make([]*videov1.Video, len(videos))
	for i, v := range videos {
		all[i] = v.read()
	}
	return all
}
