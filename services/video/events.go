package video

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	"example.com/lockstep/services/video/aggregate"
)

func createdEvent(ctx context.Context, v Video) (eventing.Event, error) {
	return newEvent(ctx, v, aggregate.Revision{}, "VideoCreated", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_CREATED,
		Payload: &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
			VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Version: v.Version, OccurredAt: timestamppb.New(v.UpdatedAt),
			Title: v.Title, Description: v.Description, DurationSeconds: v.DurationSeconds, PublishedAt: aggregate.Timestamp(v.PublishedAt),
		}},
	})
}

// updatedEvent returns an event with only the changed fields. A consumer that applies these fields
// to the version before v gets v. Fields that are set to nothing are named as cleared.
func updatedEvent(ctx context.Context, v Video, before aggregate.Revision, changed []string) (eventing.Event, error) {
	p := &eventsv1.VideoUpdated{VideoId: v.ID.String(), Version: v.Version, OccurredAt: timestamppb.New(v.UpdatedAt)}
	for _, name := range changed {
		cleared := false
		switch name {
		case "title":
			p.Title = &v.Title
		case "description":
			p.Description, cleared = &v.Description, v.Description == ""
		case "duration_seconds":
			p.DurationSeconds = &v.DurationSeconds
		case "published_at":
			p.PublishedAt, cleared = aggregate.Timestamp(v.PublishedAt), v.PublishedAt == nil
		}
		if cleared {
			p.Cleared = append(p.Cleared, name)
		}
	}
	return newEvent(ctx, v, before, "VideoUpdated", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_UPDATED, Payload: &eventsv1.Event_Updated{Updated: p},
	})
}

func deletedEvent(ctx context.Context, v Video, before aggregate.Revision, reason string) (eventing.Event, error) {
	return newEvent(ctx, v, before, "VideoDeleted", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_DELETED,
		Payload: &eventsv1.Event_Deleted{Deleted: &eventsv1.VideoDeleted{
			VideoId: v.ID.String(), Version: v.Version, Reason: reason,
			DeletedAt: aggregate.Timestamp(v.DeletedAt), OccurredAt: timestamppb.New(v.UpdatedAt),
		}},
	})
}

// newEvent completes envelope, which is the message about the change to v. It returns the event of
// the outbox with this message. before is the revision of v before the change.
func newEvent(
	ctx context.Context, v Video, before aggregate.Revision, name string, envelope *eventsv1.Event,
) (eventing.Event, error) {
	e := v.Event(ctx, v.position(), before, name)
	envelope.EventId, envelope.AggregateType, envelope.AggregateId = e.ID.String(), e.AggregateType, e.AggregateID
	envelope.Version, envelope.OccurredAt = e.Version, timestamppb.New(e.OccurredAt)
	return aggregate.Encode(e, envelope)
}
