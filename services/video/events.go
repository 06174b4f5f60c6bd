package video

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

const (
	aggregateType = "video"
	schemaVersion = 1
)

func created(ctx context.Context, v Video) ([]eventing.Event, error) {
	return event(ctx, v, uuid.NullUUID{}, "VideoCreated", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_CREATED,
		Payload: &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
			VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Version: v.Version,
			Title: v.Title, Description: v.Description, DurationSeconds: v.DurationSeconds,
			PublishedAt: pbtime.Proto(v.PublishedAt), OccurredAt: timestamppb.New(v.UpdatedAt),
		}},
	})
}

// updated carries the changed fields and no others: applied to the version before, they
// give v.
func updated(ctx context.Context, v Video, previous uuid.NullUUID, changed []string) ([]eventing.Event, error) {
	p := &eventsv1.VideoUpdated{VideoId: v.ID.String(), Version: v.Version, OccurredAt: timestamppb.New(v.UpdatedAt)}
	for _, field := range changed {
		cleared := false
		switch field {
		case "title":
			p.Title = &v.Title
		case "description":
			p.Description, cleared = &v.Description, v.Description == ""
		case "duration_seconds":
			p.DurationSeconds = &v.DurationSeconds
		case "published_at":
			p.PublishedAt, cleared = pbtime.Proto(v.PublishedAt), v.PublishedAt == nil
		}
		if cleared {
			p.Cleared = append(p.Cleared, field)
		}
	}
	return event(ctx, v, previous, "VideoUpdated", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, Payload: &eventsv1.Event_Updated{Updated: p},
	})
}

func deleted(ctx context.Context, v Video, previous uuid.NullUUID, reason string) ([]eventing.Event, error) {
	return event(ctx, v, previous, "VideoDeleted", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_DELETED,
		Payload: &eventsv1.Event_Deleted{Deleted: &eventsv1.VideoDeleted{
			VideoId: v.ID.String(), Version: v.Version, Reason: reason,
			DeletedAt: pbtime.Proto(v.DeletedAt), OccurredAt: timestamppb.New(v.UpdatedAt),
		}},
	})
}

// event completes the envelope around v's change and makes the outbox event of it.
// previous is the event of the version before.
func event(
	ctx context.Context, v Video, previous uuid.NullUUID, name string, envelope *eventsv1.Event,
) ([]eventing.Event, error) {
	e := address(ctx, v.position(), v.LastEventID, previous, name, v.UpdatedAt)
	envelope.EventId, envelope.AggregateType, envelope.AggregateId = e.ID.String(), e.AggregateType, e.AggregateID
	envelope.Version, envelope.OccurredAt = e.Version, timestamppb.New(e.OccurredAt)
	return sealed(e, envelope)
}

// address is the event without its payload: its id, and the aggregate and position that
// it leads to.
func address(
	ctx context.Context, at consistency.Position, id, previous uuid.NullUUID, name string, occurred time.Time,
) eventing.Event {
	return eventing.Event{
		ID:              id.UUID,
		PreviousEventID: previous.UUID,
		AggregateType:   at.AggregateType,
		AggregateID:     at.AggregateID,
		Type:            name,
		Version:         at.Version,
		SchemaVersion:   schemaVersion,
		OccurredAt:      occurred,
		Epoch:           at.Epoch,
		TraceParent:     eventing.TraceParent(ctx),
	}
}

// sealed is e with its envelope.
func sealed(e eventing.Event, envelope proto.Message) ([]eventing.Event, error) {
	var err error
	if e.Payload, err = proto.Marshal(envelope); err != nil {
		return nil, fmt.Errorf("encode %s: %w", e.Type, err)
	}
	return []eventing.Event{e}, nil
}
