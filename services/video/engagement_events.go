package video

import (
	"context"

	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/internal/pbtime"
	"example.com/lockstep/pkg/eventing"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
)

// engagementPut carries all of e: consumers need no event before it.
func engagementPut(ctx context.Context, e Engagement) ([]eventing.Event, error) {
	return engagementEvent(ctx, e, "EngagementPut", &engagementv1.Event{
		EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_PUT,
		Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			Liked: e.Liked, Bookmarked: e.Bookmarked, WatchedSeconds: e.WatchedSeconds,
			CreatedAt: timestamppb.New(e.CreatedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

func engagementDeleted(ctx context.Context, e Engagement) ([]eventing.Event, error) {
	return engagementEvent(ctx, e, "EngagementDeleted", &engagementv1.Event{
		EventType: engagementv1.EventType_EVENT_TYPE_ENGAGEMENT_DELETED,
		Payload: &engagementv1.Event_Deleted{Deleted: &engagementv1.EngagementDeleted{
			UserId: e.UserID.String(), VideoId: e.VideoID.String(), Version: e.Version,
			DeletedAt: pbtime.Proto(e.DeletedAt), OccurredAt: timestamppb.New(e.UpdatedAt),
		}},
	})
}

// engagementEvent completes the envelope around e's change and addresses it.
func engagementEvent(ctx context.Context, e Engagement, name string, envelope *engagementv1.Event) ([]eventing.Event, error) {
	event := address(ctx, e.position(), name, e.UpdatedAt)
	envelope.EventId, envelope.AggregateType, envelope.AggregateId = event.ID.String(), event.AggregateType, event.AggregateID
	envelope.Version, envelope.OccurredAt = event.Version, timestamppb.New(event.OccurredAt)
	return sealed(event, envelope)
}
