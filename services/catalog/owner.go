package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

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
	if _, err := parseID(id); err != nil {
		return Video{}, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideo, &videov1.GetVideoRequest{VideoId: id, IncludeDeleted: true})
	if err != nil {
		return Video{}, fmt.Errorf("video %s: %w", id, err)
	}
	return ownedVideo(resp.GetVideo(), id)
}

// videosNamed is the AskAll of videos.
func (o owner) videosNamed(ctx context.Context, ids []string, timeout time.Duration) (videos []Video, err error) {
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideos, &videov1.GetVideosRequest{VideoIds: ids})
	if err != nil {
		return nil, fmt.Errorf("videos: %w", err)
	}
	for _, p := range resp.GetVideos() {
		if !slices.Contains(ids, p.GetVideoId()) {
			return nil, fmt.Errorf("%w: got video %q, which was not asked for", fresh.ErrOwnerAway, p.GetVideoId())
		}
		v, err := ownedVideo(p, p.GetVideoId())
		if err != nil {
			return nil, err
		}
		videos = append(videos, v)
	}
	return videos, nil
}

// ownedVideo is what the owner has answered about the video called id.
func ownedVideo(p *videov1.Video, id string) (Video, error) {
	if p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return Video{}, fmt.Errorf("%w: asked for video %s, got %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetVersion(), p.GetEpoch())
	}
	videoID, err := parseID(id)
	if err != nil {
		return Video{}, fmt.Errorf("%w: video_id: %w", fresh.ErrOwnerAway, err)
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
	return ownedEngagement(resp.GetEngagement(), user, video)
}

// engagementsNamed is the AskAll of engagements. They are one user's, as all that a
// list wants.
func (o owner) engagementsNamed(ctx context.Context, ids []string, timeout time.Duration) (found []Engagement, err error) {
	users, videos := pairs(ids)
	resp, err := replica.Ask(ctx, timeout, o.engagements.GetEngagements,
		&videov1.GetEngagementsRequest{UserId: users[0], VideoIds: videos})
	if err != nil {
		return nil, fmt.Errorf("engagements: %w", err)
	}
	for _, p := range resp.GetEngagements() {
		id := p.GetUserId() + ":" + p.GetVideoId()
		user, video, err := parseEngagementID(id)
		if err != nil || !slices.Contains(ids, id) {
			return nil, fmt.Errorf("%w: got engagement %q, which was not asked for", fresh.ErrOwnerAway, id)
		}
		e, err := ownedEngagement(p, user, video)
		if err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, nil
}

// ownedEngagement is what the owner has answered about a user's engagement with a video.
func ownedEngagement(p *videov1.Engagement, user, video uuid.UUID) (Engagement, error) {
	id := engagementID(user, video)
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
