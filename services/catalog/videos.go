package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
	videov1 "example.com/lockstep/proto/video/v1"
)

const videoType = "video"

// Video is a video as the projection or its owner has it, and also the JSON of REST. A tombstone
// has only ID and Versioned. Each column has the name of its field.
type Video struct {
	ID              uuid.UUID  `json:"video_id" db:"video_id"`
	UploaderID      uuid.UUID  `json:"uploader_id"`
	Title           string     `json:"title"`
	Description     string     `json:"description"`
	DurationSeconds int64      `json:"duration_seconds"`
	PublishedAt     *time.Time `json:"published_at"`
	Versioned
	// Counters are read for readers only, and are no part of the row.
	Counters
}

// videoRevision is the inbox.Completeness.Revision of this build.
var videoRevision = projection.Revision(&eventsv1.Event{}, &videov1.Video{})

func (v Video) id() string { return v.ID.String() }

func (v Video) position() consistency.Position {
	return v.positionOf(videoType, v.id())
}

// videos is the projection.Aggregate of videos. store_videos.go has its Lock, Upsert and
// positions.
type videos struct {
	db    *pgxpool.Pool
	owner replicationv1.ReplicationServiceClient
	// shadow selects the shadow table of a rebuild in place of the served table.
	shadow bool
}

// Type is the aggregate type of the events.
func (videos) Type() string { return videoType }

// Decode reads e's payload and checks that it agrees with e's attributes.
func (videos) Decode(e eventing.Event) (inbox.Change, error) {
	id, err := parseID(e.AggregateID)
	if err := addressed(e, videoType, id.String(), err); err != nil {
		return inbox.Change{}, err
	}
	if e.Type == eventing.Skipped {
		return inbox.Change{Event: e, Kind: inbox.Skipped}, nil
	}
	var envelope eventsv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		return inbox.Change{}, fmt.Errorf("payload: %w", err)
	}
	var payload interface {
		GetVideoId() string
		GetVersion() int64
	}
	var kind inbox.Kind
	switch e.Type {
	case "VideoCreated":
		payload, kind = envelope.GetCreated(), inbox.Created
		if _, err := parseID(envelope.GetCreated().GetUploaderId()); err != nil {
			return inbox.Change{}, fmt.Errorf("uploader_id: %w", err)
		}
	case "VideoUpdated":
		payload, kind = envelope.GetUpdated(), inbox.Updated
	case "VideoDeleted":
		payload, kind = envelope.GetDeleted(), inbox.Deleted
	default:
		return additive(e, &envelope, videoRevision)
	}
	// If the payload is of another type than e, payload holds a nil pointer. Its video id is then
	// empty, and agrees fails.
	if err := agrees(e, &envelope, payload.GetVideoId(), payload.GetVersion()); err != nil {
		return inbox.Change{}, err
	}
	partial := projection.HasUnknown(&envelope) || slices.ContainsFunc(envelope.GetUpdated().GetCleared(), isUnknownName)
	return inbox.Change{Event: e, Kind: kind, Payload: payload, Revision: videoRevision, Partial: partial}, nil
}

// isUnknownName reports whether this build does not know field as a field that an update can clear.
func isUnknownName(field string) bool {
	return !slices.Contains([]string{"description", "duration_seconds", "published_at"}, field)
}

// Position is the position of a row.
func (videos) Position(v Video) inbox.Position { return v.at() }

// Apply returns the row v after the change c.
func (videos) Apply(v Video, c inbox.Change) Video {
	e, before := c.Event, v.Versioned
	switch p := c.Payload.(type) {
	case *eventsv1.VideoCreated:
		v = Video{
			UploaderID: uuid.MustParse(p.GetUploaderId()), Title: p.GetTitle(), Description: p.GetDescription(),
			DurationSeconds: p.GetDurationSeconds(), PublishedAt: timeOf(p.GetPublishedAt()),
			Versioned: Versioned{CreatedAt: &e.OccurredAt},
		}
	case *eventsv1.VideoUpdated:
		v = patched(v, p)
	case *eventsv1.VideoDeleted:
		v = Video{Versioned: Versioned{DeletedAt: cmp.Or(timeOf(p.GetDeletedAt()), &e.OccurredAt)}}
	case projection.Lost:
		v = Video{Versioned: Versioned{DeletedAt: &p.AsOf}}
	case Video:
		if v = p; p.DeletedAt != nil {
			v = Video{Versioned: Versioned{DeletedAt: p.DeletedAt}} // the row that the event would have made
		}
	}
	v.ID, v.Versioned = uuid.MustParse(e.AggregateID), before.moved(c, v.CreatedAt, v.DeletedAt)
	return v
}

// patched returns v with the fields that p sets or clears. Like every protobuf reader, patched
// ignores cleared fields that it does not know. Such fields are newer than this build, and the
// change is then partial.
func patched(v Video, p *eventsv1.VideoUpdated) Video {
	cleared := func(field string) bool { return slices.Contains(p.GetCleared(), field) }
	if p.Title != nil {
		v.Title = p.GetTitle()
	}
	if p.Description != nil || cleared("description") {
		v.Description = p.GetDescription()
	}
	if p.DurationSeconds != nil || cleared("duration_seconds") {
		v.DurationSeconds = p.GetDurationSeconds()
	}
	if p.GetPublishedAt() != nil || cleared("published_at") {
		v.PublishedAt = timeOf(p.GetPublishedAt())
	}
	return v
}

// Snapshot returns the owner's state as a change.
func (a videos) Snapshot(v Video) inbox.Change {
	return snapshot(inbox.Snapshot, v, videoType, v.id(), a.Position(v))
}

// Fetch calls the owner's GetVideoRows.
func (a videos) Fetch(ctx context.Context, ids []string, timeout time.Duration) (found []Video, epoch int64, at time.Time, err error) {
	if err := named(ids, isCanonical); err != nil {
		return nil, 0, at, err
	}
	resp, err := projection.Call(ctx, timeout, a.owner.GetVideoRows, &replicationv1.GetVideoRowsRequest{VideoIds: ids})
	if err != nil {
		return nil, 0, at, fmt.Errorf("owner's videos: %w", err)
	}
	for _, p := range resp.GetVideos() {
		if !slices.Contains(ids, p.GetVideoId()) {
			return nil, 0, at, fmt.Errorf("%w: got video %q, which was not asked for", consistency.ErrOwnerUnavailable, p.GetVideoId())
		}
		v, err := ownedVideo(p, p.GetVideoId())
		if err != nil {
			return nil, 0, at, err
		}
		found = append(found, v)
	}
	return found, resp.GetEpoch(), asOf(resp), nil
}

// List calls the owner's ListVideoRows.
func (a videos) List(ctx context.Context, from string, timeout time.Duration) (page projection.OwnersPage[Video], err error) {
	resp, err := projection.Call(ctx, timeout, a.owner.ListVideoRows, &replicationv1.ListVideoRowsRequest{From: from})
	if err != nil {
		return page, unlisted(err)
	}
	return pageOf(resp, resp.GetVideos(), func(p *videov1.Video) (Video, error) { return ownedVideo(p, p.GetVideoId()) })
}

// ownedVideo reads the owner's answer about the video with this id.
func ownedVideo(p *videov1.Video, id string) (Video, error) {
	if p.GetVideoId() != id {
		return Video{}, fmt.Errorf("%w: asked for video %s, got %q", consistency.ErrOwnerUnavailable, id, p.GetVideoId())
	}
	videoID, err := parseID(id)
	if err != nil {
		return Video{}, fmt.Errorf("%w: video_id: %w", consistency.ErrOwnerUnavailable, err)
	}
	uploader, err := parseID(p.GetUploaderId())
	if err != nil {
		return Video{}, fmt.Errorf("%w: uploader_id: %w", consistency.ErrOwnerUnavailable, err)
	}
	row, err := ownedVersion(p, videoRevision)
	if err != nil {
		return Video{}, fmt.Errorf("owner's video %s: %w", id, err)
	}
	return Video{
		ID: videoID, UploaderID: uploader, Title: p.GetTitle(), Description: p.GetDescription(),
		DurationSeconds: p.GetDurationSeconds(), PublishedAt: timeOf(p.GetPublishedAt()),
		Versioned: row,
	}, nil
}
