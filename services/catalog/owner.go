package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/pbtime"
	videov1 "example.com/lockstep/proto/video/v1"
)

// errOwnerLacks: the owner answered that there never was such a video.
var errOwnerLacks = errors.New("owner does not know the video")

// Owner is the way to the service that owns videos.
type Owner struct{ videos videov1.VideoServiceClient }

// get returns the video or its tombstone as the owner has it. Its errors are
// errOwnerLacks, fresh.ErrOwnerAway, or that the caller has gone away.
func (o Owner) get(ctx context.Context, id uuid.UUID, timeout time.Duration) (Video, error) {
	asking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := o.videos.GetVideo(asking, &videov1.GetVideoRequest{VideoId: id.String(), IncludeDeleted: true})
	p := resp.GetVideo()
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Video{}, ctx.Err()
	case status.Code(err) == codes.NotFound:
		return Video{}, fmt.Errorf("%w: %s", errOwnerLacks, id)
	case err != nil:
		return Video{}, fmt.Errorf("%w: %w", fresh.ErrOwnerAway, err)
	case p.GetVideoId() != id.String() || p.GetVersion() < 1 || p.GetEpoch() < 1:
		return Video{}, fmt.Errorf("%w: asked for video %s, got %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetVersion(), p.GetEpoch())
	}
	uploader, err := parseID(p.GetUploaderId())
	if err != nil {
		return Video{}, fmt.Errorf("%w: uploader_id: %w", fresh.ErrOwnerAway, err)
	}
	return Video{
		ID: id, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
	}, nil
}
