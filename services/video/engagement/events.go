package engagement

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	eventsv1 "example.com/lockstep/proto/engagement/events/v1"
	"example.com/lockstep/services/video/aggregate"
)

// putEvent returns an event with all fields of e. So consumers need no earlier event of the
// engagement.
func putEvent(ctx context.Context, e Engagement, before aggregate.Revision) (eventing.Event, error) {
	return newEvent(ctx, e, before, "EngagementPut", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_ENGAGEMENT_PUT,
		Payload: &eventsv1.Event_Put{Put: &eventsv1.EngagementPut{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			Liked: e.Liked, Bookmarked: e.Bookmarked, WatchedSeconds: e.WatchedSeconds,
			CreatedAt: timestamppb.New(e.CreatedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

func deletedEvent(ctx context.Context, e Engagement, before aggregate.Revision) (eventing.Event, error) {
	return newEvent(ctx, e, before, "EngagementDeleted", &eventsv1.Event{
		EventType: eventsv1.EventType_EVENT_TYPE_ENGAGEMENT_DELETED,
		Payload: &eventsv1.Event_Deleted{Deleted: &eventsv1.EngagementDeleted{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			DeletedAt: aggregate.Timestamp(e.DeletedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

// newEvent completes envelope, which is the message about the change to e. It returns the event of
// the outbox with this message. before is the revision of e before the change.
func newEvent(
	ctx context.Context, e Engagement, before aggregate.Revision, name string, envelope *eventsv1.Event,
) (eventing.Event, error) {
	made := e.Event(ctx, e.position(), before, name)
	envelope.EventId, envelope.AggregateType, envelope.AggregateId = made.ID.String(), made.AggregateType, made.AggregateID
	envelope.Version, envelope.OccurredAt = made.Version, timestamppb.New(made.OccurredAt)
	return aggregate.Encode(made, envelope)
}
