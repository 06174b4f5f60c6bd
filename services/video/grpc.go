package video

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	videov1 "example.com/lockstep/proto/video/v1"
)

// registerGRPC adds the APIs of proto/video/v1 to a server.
func registerGRPC(r grpc.ServiceRegistrar, s *Service) {
	videov1.RegisterVideoServiceServer(r, grpcServer{service: s})
	videov1.RegisterEngagementServiceServer(r, engagementServer{service: s})
}

// grpcServer is the API of videos.
type grpcServer struct {
	videov1.UnimplementedVideoServiceServer
	service *Service
}

func (g grpcServer) CreateVideo(ctx context.Context, req *videov1.CreateVideoRequest) (*videov1.CreateVideoResponse, error) {
	w := callWrite(ctx, 0)
	v := written(req, &w.bad)
	v.UploaderID = w.bad.UUID("uploader_id", req.GetUploaderId())
	a, err := g.service.Create(ctx, v, w)
	if err != nil {
		return nil, err
	}
	return &videov1.CreateVideoResponse{Video: a.Is.proto(), ConsistencyToken: a.Is.Token()}, sayReplayed(ctx, a.Replayed)
}

// UpdateVideo clears a field that the mask names and the message leaves unset; JSON
// says the same with null.
func (g grpcServer) UpdateVideo(ctx context.Context, req *videov1.UpdateVideoRequest) (*videov1.UpdateVideoResponse, error) {
	fields := req.GetUpdateMask().GetPaths()
	if len(fields) > maxMask { // before any work is done for each name
		return nil, problem.Invalid("update_mask", fmt.Sprintf("must name at most %d fields", maxMask))
	}
	w := callWrite(ctx, req.GetExpectedVersion())
	id := w.bad.UUID("video_id", req.GetVideo().GetVideoId())
	w.bad.Unless(len(fields) > 0, "update_mask", "must name a field")
	if i := slices.IndexFunc(fields, func(field string) bool { return !slices.Contains(changeable, field) }); i >= 0 {
		w.bad.Unless(false, "update_mask", "must not name "+fields[i])
	}
	a, err := g.service.Update(ctx, id, fields, written(req.GetVideo(), &w.bad), w)
	if err != nil {
		return nil, err
	}
	return &videov1.UpdateVideoResponse{Video: a.Is.proto(), ConsistencyToken: a.Is.Token()}, sayReplayed(ctx, a.Replayed)
}

func (g grpcServer) DeleteVideo(ctx context.Context, req *videov1.DeleteVideoRequest) (*videov1.DeleteVideoResponse, error) {
	w := callWrite(ctx, req.GetExpectedVersion())
	a, err := g.service.Delete(ctx, w.bad.UUID("video_id", req.GetVideoId()), req.GetReason(), w)
	if err != nil {
		return nil, err
	}
	v := a.Is
	return &videov1.DeleteVideoResponse{
		VideoId: v.ID.String(), Version: v.Version, DeletedAt: pbtime.Proto(v.DeletedAt), ConsistencyToken: v.Token(),
	}, sayReplayed(ctx, a.Replayed)
}

func (g grpcServer) GetVideo(ctx context.Context, req *videov1.GetVideoRequest) (*videov1.GetVideoResponse, error) {
	var bad problem.Faults
	id := bad.UUID("video_id", req.GetVideoId())
	if err := bad.Err(); err != nil {
		return nil, err
	}
	v, asOf, err := g.service.GetAsOf(ctx, id, req.GetIncludeDeleted())
	if err != nil {
		return nil, lackedAsOf(err, asOf)
	}
	return &videov1.GetVideoResponse{Video: v.read(), AsOf: pbtime.Proto(asOf)}, nil
}

// lackedAsOf has the answer that there is no such thing say from when it is, as any other
// answer does.
func lackedAsOf(err error, asOf *time.Time) error {
	none, ok := errors.AsType[*problem.Error](err)
	if !ok || none.Code != problem.CodeNotFound || asOf == nil {
		return err
	}
	dated := *none
	dated.Extra = map[string]any{"as_of": *asOf}
	return &dated
}

func (g grpcServer) GetVideos(ctx context.Context, req *videov1.GetVideosRequest) (*videov1.GetVideosResponse, error) {
	videos, asOf, err := g.service.GetMany(ctx, req.GetVideoIds())
	if err != nil {
		return nil, err
	}
	resp := &videov1.GetVideosResponse{AsOf: pbtime.Proto(asOf)}
	for _, v := range videos {
		resp.Videos = append(resp.Videos, v.read())
	}
	return resp, nil
}

func (g grpcServer) ListVideos(ctx context.Context, req *videov1.ListVideosRequest) (*videov1.ListVideosResponse, error) {
	f := Filter{IncludeDeleted: req.GetIncludeDeleted()}
	if req.GetUploaderId() != "" {
		var bad problem.Faults
		f.UploaderID = bad.UUID("uploader_id", req.GetUploaderId())
		if err := bad.Err(); err != nil {
			return nil, err
		}
	}
	videos, next, err := g.service.List(ctx, f, cmp.Or(int(req.GetPageSize()), rest.DefaultPageSize), req.GetPageToken())
	if err != nil {
		return nil, err
	}
	resp := &videov1.ListVideosResponse{NextPageToken: next}
	for _, v := range videos {
		resp.Videos = append(resp.Videos, v.read())
	}
	return resp, nil
}

// callWrite reads the metadata of a write.
func callWrite(ctx context.Context, expectedVersion int64) (w Write) {
	w.Keys, w.IfVersion = metadata.ValueFromIncomingContext(ctx, "idempotency-key"), expectedVersion
	w.bad.Unless(expectedVersion >= 0, "expected_version", "must not be negative")
	return w
}

// written reads the fields of a video that a caller may write.
func written(m interface {
	GetTitle() string
	GetDescription() string
	GetDurationSeconds() int64
	GetPublishedAt() *timestamppb.Timestamp
}, bad *problem.Faults,
) Video {
	v := Video{Title: m.GetTitle(), Description: m.GetDescription(), DurationSeconds: m.GetDurationSeconds()}
	if t := m.GetPublishedAt(); t != nil {
		bad.Unless(t.IsValid(), "published_at", "must be a valid timestamp")
		v.PublishedAt = new(micros(t.AsTime()))
	}
	return v
}

// sayReplayed sends, as response metadata, the fact that REST sends as a header.
func sayReplayed(ctx context.Context, replayed bool) error {
	if !replayed {
		return nil
	}
	return grpc.SetHeader(ctx, metadata.Pairs("idempotency-replayed", "true"))
}

func (v Video) proto() *videov1.Video {
	return &videov1.Video{
		VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Title: v.Title, Description: v.Description,
		DurationSeconds: v.DurationSeconds, PublishedAt: pbtime.Proto(v.PublishedAt), Version: v.Version,
		CreatedAt: pbtime.Proto(&v.CreatedAt), UpdatedAt: pbtime.Proto(&v.UpdatedAt), DeletedAt: pbtime.Proto(v.DeletedAt),
		Epoch: eventing.Epoch,
	}
}

// read is v for readers, which may keep a copy. Writers do not get these fields: the
// answer to a retry has only the fields of the JSON.
func (v Video) read() *videov1.Video {
	p := v.proto()
	p.LastEventId = eventText(v.LastEventID)
	return p
}

// eventText is empty for an unknown event.
func eventText(id uuid.NullUUID) string {
	if !id.Valid {
		return ""
	}
	return id.UUID.String()
}
