package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

const (
	aggregateType = "video"
	schemaVersion = 1
)

// change is one step of a video to (epoch, version).
type change struct {
	video          uuid.UUID
	epoch, version int64
	at             time.Time
	// payload is a *VideoCreated, *VideoUpdated or *VideoDeleted of eventsv1, or
	// a Video: the owner's state.
	payload any
}

func (c change) newerThan(v Video) bool {
	return c.epoch > v.Epoch || c.epoch == v.Epoch && c.version > v.Version
}

func videoKey(id uuid.UUID) string { return eventing.Key(aggregateType, id.String()) }

func (v Video) position() consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: v.ID.String(), Epoch: v.Epoch, Version: v.Version}
}

func snapshot(v Video) change {
	return change{video: v.ID, epoch: v.Epoch, version: v.Version, at: v.UpdatedAt, payload: v}
}

// decode reads e's payload and holds it against e's attributes.
func decode(e eventing.Event) (change, error) {
	id, err := parseID(e.AggregateID)
	switch {
	case err != nil:
		return change{}, fmt.Errorf("aggregate_id: %w", err)
	case e.AggregateType != aggregateType:
		return change{}, fmt.Errorf("aggregate_type: %q is unknown", e.AggregateType)
	case e.SchemaVersion != schemaVersion:
		return change{}, fmt.Errorf("schema_version: %d is unknown", e.SchemaVersion)
	}
	var envelope eventsv1.Event
	if err := proto.Unmarshal(e.Payload, &envelope); err != nil {
		return change{}, fmt.Errorf("payload: %w", err)
	}
	var payload interface {
		GetVideoId() string
		GetVersion() int64
	}
	switch e.Type {
	case "VideoCreated":
		payload = envelope.GetCreated()
		if _, err := parseID(envelope.GetCreated().GetUploaderId()); err != nil {
			return change{}, fmt.Errorf("uploader_id: %w", err)
		}
	case "VideoUpdated":
		payload = envelope.GetUpdated()
	case "VideoDeleted":
		payload = envelope.GetDeleted()
	default:
		return change{}, fmt.Errorf("event_type: %q is unknown", e.Type)
	}
	// A payload of another type than e's is nil here, and names no video.
	said := []any{
		envelope.GetEventId(), envelope.GetAggregateType(), envelope.GetAggregateId(), envelope.GetVersion(),
		payload.GetVideoId(), payload.GetVersion(),
	}
	want := []any{e.ID.String(), e.AggregateType, e.AggregateID, e.Version, id.String(), e.Version}
	if !slices.Equal(said, want) {
		return change{}, fmt.Errorf("payload says %v, the attributes of a %s say %v", said, e.Type, want)
	}
	return change{video: id, epoch: e.Epoch, version: e.Version, at: e.OccurredAt, payload: payload}, nil
}

// onto is the row after the change, from the row before.
func (c change) onto(v Video) Video {
	switch p := c.payload.(type) {
	case *eventsv1.VideoCreated:
		v = Video{
			UploaderID: uuid.MustParse(p.GetUploaderId()), Title: p.GetTitle(), Description: p.GetDescription(),
			DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()), CreatedAt: &c.at,
		}
	case *eventsv1.VideoUpdated:
		v = patched(v, p)
	case *eventsv1.VideoDeleted:
		v = Video{DeletedAt: cmp.Or(pbtime.Time(p.GetDeletedAt()), &c.at)}
	case Video:
		if v = p; p.DeletedAt != nil {
			v = Video{DeletedAt: p.DeletedAt} // as the event would have left it
		}
	}
	v.ID, v.Epoch, v.Version, v.UpdatedAt = c.video, c.epoch, c.version, c.at
	return v
}

// patched ignores cleared fields that it does not know, like every protobuf
// reader: they are newer than this copy.
func patched(v Video, p *eventsv1.VideoUpdated) Video {
	for _, field := range p.GetCleared() {
		switch field {
		case "description":
			v.Description = ""
		case "duration_seconds":
			v.DurationSeconds = 0
		case "published_at":
			v.PublishedAt = nil
		}
	}
	if p.Title != nil {
		v.Title = p.GetTitle()
	}
	if p.Description != nil {
		v.Description = p.GetDescription()
	}
	if p.DurationSeconds != nil {
		v.DurationSeconds = p.GetDurationSeconds()
	}
	if at := p.GetPublishedAt(); at != nil {
		v.PublishedAt = pbtime.Time(at)
	}
	return v
}
