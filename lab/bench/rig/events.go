package rig

import (
	"fmt"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	engagementv1 "example.com/lockstep/proto/engagement/events/v1"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// Payload is the payload of events that nothing decodes. It is as large as a small record in
// protobuf.
var Payload = make([]byte, 300)

// VideoCreated returns an event for the creation of a video, with [Payload].
func VideoCreated(id uuid.UUID, at time.Time) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: id.String(), Type: "VideoCreated", Version: 1, SchemaVersion: 1,
		Payload: Payload, OccurredAt: at, Epoch: eventing.FirstEpoch,
	}
}

// VideoEvent returns an event with a real payload. Version 1 is the creation of a video. Each later
// version has a new title.
func VideoEvent(id uuid.UUID, version int64) (eventing.Event, error) {
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: id.String(), Type: "VideoUpdated",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch,
	}
	title := fmt.Sprintf("Title of version %d", version)
	envelope := eventsv1.Event{
		EventId: e.ID.String(), AggregateId: e.AggregateID, AggregateType: e.AggregateType, Version: version,
		OccurredAt: timestamppb.New(e.OccurredAt),
		Payload:    &eventsv1.Event_Updated{Updated: &eventsv1.VideoUpdated{VideoId: e.AggregateID, Version: version, Title: &title}},
	}
	if version == 1 {
		e.Type = "VideoCreated"
		envelope.Payload = &eventsv1.Event_Created{Created: &eventsv1.VideoCreated{
			VideoId: e.AggregateID, Version: version, UploaderId: e.ID.String(), Title: title,
			Description: "A description of some length, as people write them.", DurationSeconds: 60,
		}}
	}
	var err error
	e.Payload, err = proto.Marshal(&envelope)
	return e, err
}

// EngagementEvent returns an event with a real payload, for a user's engagement with a video. With
// each version the user has watched more of the video.
func EngagementEvent(user, video uuid.UUID, version int64) (eventing.Event, error) {
	e := eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "engagement", AggregateID: user.String() + ":" + video.String(), Type: "EngagementPut",
		Version: version, SchemaVersion: 1, OccurredAt: time.Now().UTC(), Epoch: eventing.FirstEpoch,
	}
	var err error
	e.Payload, err = proto.Marshal(&engagementv1.Event{
		EventId: e.ID.String(), AggregateId: e.AggregateID, AggregateType: e.AggregateType, Version: version,
		OccurredAt: timestamppb.New(e.OccurredAt),
		Payload: &engagementv1.Event_Put{Put: &engagementv1.EngagementPut{
			UserId: user.String(), VideoId: video.String(), Version: version, Liked: true, WatchedSeconds: 10 * version,
		}},
	})
	return e, err
}

// Message returns e as the broker delivers it, with the message id id.
func Message(e eventing.Event, id string) *pubsub.Message {
	m := e.Message()
	return &pubsub.Message{
		ID: id, Data: m.GetData(), Attributes: m.GetAttributes(), OrderingKey: m.GetOrderingKey(), PublishTime: e.OccurredAt,
	}
}
