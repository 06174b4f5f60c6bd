package aggregate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// schemaVersion is that of the envelopes of every aggregate.
const schemaVersion = 1

// NewEventID is the id of an event that is about to be made.
func NewEventID() uuid.NullUUID { return uuid.NullUUID{UUID: NewID(), Valid: true} }

// EventID is empty for an unknown event.
func EventID(id uuid.NullUUID) string {
	if !id.Valid {
		return ""
	}
	return id.UUID.String()
}

// Token is the consistency token of one position.
func Token(at consistency.Position) string {
	return consistency.Token{Positions: []consistency.Position{at}}.String()
}

// NewEvent is an event without its payload: its id, the event of the version before, and
// the aggregate and the position that it leads to.
func NewEvent(
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

// Encode returns e with its payload, the envelope.
func Encode(e eventing.Event, envelope proto.Message) (eventing.Event, error) {
	var err error
	if e.Payload, err = proto.Marshal(envelope); err != nil {
		return eventing.Event{}, fmt.Errorf("encode %s: %w", e.Type, err)
	}
	return e, nil
}
