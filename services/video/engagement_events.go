package video

import (
	"context"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/pkg/eventing"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
)

// engagementPut carries all of e: consumers need no event before it.
func engagementPut(ctx context.Context, e Engagement, previous uuid.NullUUID) ([]eventing.Event, error) {
	return engagementEvent(ctx, e, previous, "EngagementPut", &engagementv1.Event{
		EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_PUT,
		Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			Liked: e.Liked, Bookmarked: e.Bookmarked, WatchedSeconds: e.WatchedSeconds,
			CreatedAt: timestamppb.New(e.CreatedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

func engagementDeleted(ctx context.Context, e Engagement, previous uuid.NullUUID) ([]eventing.Event, error) {
	return engagementEvent(ctx, e, previous, "EngagementDeleted", &engagementv1.Event{
		EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_DELETED,
		Payload: &engagementv1.Event_Deleted{Deleted: &engagementv1.EngagementDeleted{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			DeletedAt: pbtime.Proto(e.DeletedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

// engagementEvent completes the envelope around e's change and makes the outbox event
// of it. previous is the event of the version before.
func engagementEvent(
	ctx context.Context, e Engagement, previous uuid.NullUUID, name string, envelope *engagementv1.Event,
) ([]eventing.Event, error) {
	event := address(ctx, e.position(), e.LastEventID, previous, name, e.UpdatedAt)
	envelope.EventId, envelope.AggregateType, envelope.AggregateId = event.ID.String(), event.AggregateType, event.AggregateID
	envelope.Version, envelope.OccurredAt = event.Version, timestamppb.New(event.OccurredAt)
	return sealed(event, envelope)
}
