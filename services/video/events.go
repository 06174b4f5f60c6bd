package video

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
	"example.com/lockstep/services/video/aggregate"
)

func createdEvent(ctx context.Context, v Video) (eventing.Event, error) {
	p := &eventsv1.VideoCreated{
		VideoId: v.ID.String(), UploaderId: v.UploaderID.String(), Version: v.Version, OccurredAt: timestamppb.New(v.UpdatedAt),
	}
	for _, f := range fields {
		f.created(v, p)
	}
	return newEvent(ctx, v, aggregate.Revision{}, "VideoCreated", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_VIDEO_CREATED, Payload: &eventsv1.Event_Created{Created: p},
	})
}

// updatedEvent returns an event with only the changed fields. A consumer that applies these fields
// to the version before v gets v.
func updatedEvent(ctx context.Context, v Video, before aggregate.Revision, changed []field) (eventing.Event, error) {
	p := &eventsv1.VideoUpdated{VideoId: v.ID.String(), Version: v.Version, OccurredAt: timestamppb.New(v.UpdatedAt)}
	for _, f := range changed {
		if cleared := f.updated(v, p); cleared {
			p.Cleared = append(p.Cleared, f.name())
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
