package catalog

import (
	"context"
	"fmt"
	"time"

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
func (o owner) video(ctx context.Context, id string, timeout time.Duration) (Video, error) {
	videoID, err := parseID(id)
	if err != nil {
		return Video{}, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideo, &videov1.GetVideoRequest{VideoId: id, IncludeDeleted: true})
	if err != nil {
		return Video{}, fmt.Errorf("video %s: %w", id, err)
	}
	p := resp.GetVideo()
	if p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return Video{}, fmt.Errorf("%w: asked for video %s, got %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetVersion(), p.GetEpoch())
	}
	uploader, err := parseID(p.GetUploaderId())
	if err != nil {
		return Video{}, fmt.Errorf("%w: uploader_id: %w", fresh.ErrOwnerAway, err)
	}
	return Video{
		ID: videoID, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
	}, nil
}

// engagement is the Ask of engagements.
func (o owner) engagement(ctx context.Context, id string, timeout time.Duration) (Engagement, error) {
	user, video, err := parseEngagementID(id)
	if err != nil {
		return Engagement{}, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.engagements.GetEngagement,
		&videov1.GetEngagementRequest{UserId: user.String(), VideoId: video.String(), IncludeDeleted: true})
	if err != nil {
		return Engagement{}, fmt.Errorf("engagement %s: %w", id, err)
	}
	p := resp.GetEngagement()
	if p.GetUserId()+":"+p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return Engagement{}, fmt.Errorf("%w: asked for engagement %s, got %q of %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetUserId(), p.GetVersion(), p.GetEpoch())
	}
	return Engagement{
		UserID: user, VideoID: video, Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
	}, nil
}
