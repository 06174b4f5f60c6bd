package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/replica"
	videov1 "example.com/lockstep/proto/video/v1"
)

// owner calls the service that owns videos and engagements.
type owner struct {
	videos      videov1.VideoServiceClient
	engagements videov1.EngagementServiceClient
}

// video is the Ask of videos.
func (o owner) video(ctx context.Context, id string, timeout time.Duration) (a replica.Answer[Video], err error) {
	if _, err := parseID(id); err != nil {
		return a, fmt.Errorf("%w: %w", replica.ErrUnknown, err)
	}
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideo, &videov1.GetVideoRequest{VideoId: id, IncludeDeleted: true})
	if err != nil {
		a.AsOf = lackedAsOf(err)
		return a, fmt.Errorf("video %s: %w", id, err)
	}
	a.Row, err = ownedVideo(resp.GetVideo(), id)
	a.AsOf = asOf(resp)
	return a, err
}

// videosNamed is the AskAll of videos.
func (o owner) videosNamed(ctx context.Context, ids []string, timeout time.Duration) (videos []Video, at time.Time, err error) {
	resp, err := replica.Ask(ctx, timeout, o.videos.GetVideos, &videov1.GetVideosRequest{VideoIds: ids})
	if err != nil {
		return nil, at, fmt.Errorf("videos: %w", err)
	}
	for _, p := range resp.GetVideos() {
		if !slices.Contains(ids, p.GetVideoId()) {
			return nil, at, fmt.Errorf("%w: got video %q, which was not asked for", fresh.ErrOwnerAway, p.GetVideoId())
		}
		v, err := ownedVideo(p, p.GetVideoId())
		if err != nil {
			return nil, at, err
		}
		videos = append(videos, v)
	}
	return videos, asOf(resp), nil
}

// ownedVideo is the owner's answer about the video called id.
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
	last, err := lastEvent(p.GetLastEventId())
	if err != nil {
		return Video{}, err
	}
	return Video{
		ID: videoID, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
		LastEventID: last,
	}, nil
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
		a.AsOf = lackedAsOf(err)
		return a, fmt.Errorf("engagement %s: %w", id, err)
	}
	a.Row, err = ownedEngagement(resp.GetEngagement(), user, video)
	a.AsOf = asOf(resp)
	return a, err
}

// engagementsNamed is the AskAll of engagements. They all belong to one user, like all
// engagements that one list demands.
func (o owner) engagementsNamed(ctx context.Context, ids []string, timeout time.Duration) (found []Engagement, at time.Time, err error) {
	users, videos := pairs(ids)
	resp, err := replica.Ask(ctx, timeout, o.engagements.GetEngagements,
		&videov1.GetEngagementsRequest{UserId: users[0], VideoIds: videos})
	if err != nil {
		return nil, at, fmt.Errorf("engagements: %w", err)
	}
	for _, p := range resp.GetEngagements() {
		id := p.GetUserId() + ":" + p.GetVideoId()
		user, video, err := parseEngagementID(id)
		if err != nil || !slices.Contains(ids, id) {
			return nil, at, fmt.Errorf("%w: got engagement %q, which was not asked for", fresh.ErrOwnerAway, id)
		}
		e, err := ownedEngagement(p, user, video)
		if err != nil {
			return nil, at, err
		}
		found = append(found, e)
	}
	return found, asOf(resp), nil
}

// ownedEngagement is the owner's answer about a user's engagement with a video.
func ownedEngagement(p *videov1.Engagement, user, video uuid.UUID) (Engagement, error) {
	id := engagementID(user, video)
	if p.GetUserId()+":"+p.GetVideoId() != id || p.GetVersion() < 1 || p.GetEpoch() < 1 {
		return Engagement{}, fmt.Errorf("%w: asked for engagement %s, got %q of %q version %d epoch %d",
			fresh.ErrOwnerAway, id, p.GetVideoId(), p.GetUserId(), p.GetVersion(), p.GetEpoch())
	}
	last, err := lastEvent(p.GetLastEventId())
	if err != nil {
		return Engagement{}, err
	}
	return Engagement{
		UserID: user, VideoID: video, Liked: p.GetLiked(), Bookmarked: p.GetBookmarked(), WatchedSeconds: p.GetWatchedSeconds(),
		Version: p.GetVersion(), Epoch: p.GetEpoch(),
		CreatedAt: pbtime.Time(p.GetCreatedAt()), UpdatedAt: p.GetUpdatedAt().AsTime(), DeletedAt: pbtime.Time(p.GetDeletedAt()),
		LastEventID: last,
	}, nil
}

// lastEvent reads a last_event_id; an owner that does not know it leaves it empty.
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

// asOf reads the time of an answer; an owner that does not know it leaves it empty.
func asOf(answer interface{ GetAsOf() *timestamppb.Timestamp }) time.Time {
	if t := answer.GetAsOf(); t != nil {
		return t.AsTime()
	}
	return time.Time{}
}

// lackedAsOf is asOf of the answer that there is no such thing.
func lackedAsOf(answer error) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, problem.MetadataOf(answer)["as_of"]) // zero where it does not say
	return t
}
