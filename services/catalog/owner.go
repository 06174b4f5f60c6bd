package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/replica"
	videov1 "example.com/lockstep/proto/video/v1"
)

// owner is the way to the service that owns videos and engagements.
type owner struct {
	videos      videov1.VideoServiceClient
	engagements videov1.EngagementServiceClient
}

// video is the Ask of videos.
func (o owner) video(ctx context.Context, id string, timeout time.Duration) (a replica.Answer[Video], err error) {
	videoID, err := parseID(id)
	if err != nil {
		return a, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideo, &videov1.GetVideoRequest{VideoId: id, IncludeDeleted: true})
	if err != nil {
		return a, fmt.Errorf("video %s: %w", id, err)
	}
	p := resp.GetVideo()
	if p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return a, fmt.Errorf("%w: asked for video %s, got %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetVersion(), p.GetEpoch())
	}
	uploader, err := parseID(p.GetUploaderId())
	if err != nil {
		return a, fmt.Errorf("%w: uploader_id: %w", fresh.ErrOwnerAway, err)
	}
	last, err := lastEvent(p.GetLastEventId())
	if err != nil {
		return a, err
	}
	a.AsOf = asOf(resp)
	a.Row = Video{
		ID: videoID, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
		LastEventID: last,
	}
	return a, nil
}

// engagement is the Ask of engagements.
func (o owner) engagement(ctx context.Context, id string, timeout time.Duration) (a replica.Answer[Engagement], err error) {
	user, video, err := parseEngagementID(id)
	if err != nil {
		return a, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.engagements.GetEngagement,
		&videov1.GetEngagementRequest{UserId: user.String(), VideoId: video.String(), IncludeDeleted: true})
	if err != nil {
		return a, fmt.Errorf("engagement %s: %w", id, err)
	}
	p := resp.GetEngagement()
	if p.GetUserId()+":"+p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return a, fmt.Errorf("%w: asked for engagement %s, got %q of %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetUserId(), p.GetVersion(), p.GetEpoch())
	}
	last, err := lastEvent(p.GetLastEventId())
	if err != nil {
		return a, err
	}
	a.AsOf = asOf(resp)
	a.Row = Engagement{
		UserID: user, VideoID: video, Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
		LastEventID: last,
	}
	return a, nil
}

// lastEvent reads a last_event_id; an owner that does not know it says nothing.
func lastEvent(id string) (uuid.NullUUID, error) {
	if id == "" {
		return uuid.NullUUID{}, nil
	}
	last, err := uuid.Parse(id)
	if err != nil {
		return uuid.NullUUID{}, fmt.Errorf("%w: last_event_id: %w", fresh.ErrOwnerAway, err)
	}
	return known(last), nil
}

// asOf reads from when an answer is; an owner that does not know says nothing.
func asOf(answer interface{ GetAsOf() *timestamppb.Timestamp }) time.Time {
	if t := answer.GetAsOf(); t != nil {
		return t.AsTime()
	}
	return time.Time{}
}
