package catalog

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

const (
	aggregateType = "video"
	schemaVersion = 1
)

func (v Video) position() consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: v.ID.String(), Epoch: v.Epoch, Version: v.Version}
}

// snapshot is the owner's state as a change.
func snapshot(v Video) inbox.Change {
	kind := inbox.Snapshot
	if v.DeletedAt != nil {
		kind = inbox.Deleted
	}
	return inbox.Change{Kind: kind, Payload: v, Event: eventing.Event{
		ID: v.LastEventID.UUID, AggregateType: aggregateType, AggregateID: v.ID.String(),
		Epoch: v.Epoch, Version: v.Version, OccurredAt: v.UpdatedAt,
	}}
}

// decode reads e's payload and checks that it agrees with e's attributes.
func decode(e eventing.Event) (inbox.Change, error) {
	id, err := parseID(e.AggregateID)
	if err := addressed(e, aggregateType, id.String(), err); err != nil {
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
		return inbox.Change{}, fmt.Errorf("event_type: %q: %w", e.Type, inbox.ErrUnknown)
	}
	// A payload of another type than e's is nil here, and names no video.
	if err := agrees(e, &envelope, payload.GetVideoId(), payload.GetVersion()); err != nil {
		return inbox.Change{}, err
	}
	return inbox.Change{Event: e, Kind: kind, Payload: payload}, nil
}

// addressed checks the attributes that all events of a type have. id is the canonical
// form of the aggregate's id, and err the fault of e's aggregate_id.
func addressed(e eventing.Event, aggregateType, id string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("aggregate_id: %w", err)
	case e.AggregateID != id: // another key for the same aggregate
		return fmt.Errorf("aggregate_id: %q is not written as %s", e.AggregateID, id)
	case e.AggregateType != aggregateType:
		return fmt.Errorf("aggregate_type: %q is unknown", e.AggregateType)
	case e.SchemaVersion != schemaVersion:
		return fmt.Errorf("schema_version: %d: %w", e.SchemaVersion, inbox.ErrUnknown)
	}
	return nil
}

// agrees checks an envelope, and its payload's id and version, against e's attributes.
func agrees(e eventing.Event, envelope interface {
	GetEventId() string
	GetAggregateType() string
	GetAggregateId() string
	GetVersion() int64
}, id string, version int64,
) error {
	said := []any{envelope.GetEventId(), envelope.GetAggregateType(), envelope.GetAggregateId(), envelope.GetVersion(), id, version}
	want := []any{e.ID.String(), e.AggregateType, e.AggregateID, e.Version, e.AggregateID, e.Version}
	if !slices.Equal(said, want) {
		return fmt.Errorf("payload says %v, the attributes of a %s say %v", said, e.Type, want)
	}
	return nil
}

// onto is the row after c, from the row before.
func onto(v Video, c inbox.Change) Video {
	e := c.Event
	switch p := c.Payload.(type) {
	case *eventsv1.VideoCreated:
		v = Video{
			UploaderID: uuid.MustParse(p.GetUploaderId()), Title: p.GetTitle(), Description: p.GetDescription(),
			DurationSeconds: p.GetDurationSeconds(), PublishedAt: pbtime.Time(p.GetPublishedAt()), CreatedAt: &e.OccurredAt,
		}
	case *eventsv1.VideoUpdated:
		v = patched(v, p)
	case *eventsv1.VideoDeleted:
		v = Video{DeletedAt: cmp.Or(pbtime.Time(p.GetDeletedAt()), &e.OccurredAt)}
	case Video:
		if v = p; p.DeletedAt != nil {
			v = Video{DeletedAt: p.DeletedAt} // as the event would have left it
		}
	}
	v.ID, v.Epoch, v.Version, v.UpdatedAt, v.LastEventID = uuid.MustParse(e.AggregateID), e.Epoch, e.Version, e.OccurredAt, known(e.ID)
	return v
}

// known is an event's id as rows have it: NULL if it is unknown.
func known(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

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
