package relay

import (
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Payload is the payload of every event: as large as a small record in
// protobuf.
var Payload = make([]byte, 300)

// VideoCreated is the creation of a video, with a dummy payload.
func VideoCreated(id uuid.UUID, at time.Time) eventing.Event {
	return eventing.Event{
		ID: uuid.Must(uuid.NewV7()), AggregateType: "video", AggregateID: id.String(), Type: "VideoCreated", Version: 1, SchemaVersion: 1,
		Payload: Payload, OccurredAt: at, Epoch: eventing.Epoch,
	}
}
