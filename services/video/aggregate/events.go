package aggregate

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// schemaVersion is that of the envelopes of every aggregate.
const schemaVersion = 1

// EventID is r's event as messages name it; it is empty for an unknown event.
func (r Revision) EventID() string {
	if !r.LastEventID.Valid {
		return ""
	}
	return r.LastEventID.UUID.String()
}

// Position is the position of the row at r.
func (r Revision) Position(aggregateType, id string) consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: id, Epoch: r.Epoch, Version: r.Version}
}

// Token is the consistency token of the row's position at.
func (r Revision) Token(at consistency.Position) string {
	return consistency.Token{Tenant: r.TenantID, Positions: []consistency.Position{at}}.String()
}

// Event is the event that led the row at position at from the revision before to r,
// without its payload.
func (r Revision) Event(ctx context.Context, at consistency.Position, before Revision, name string) eventing.Event {
	return eventing.Event{
		ID:              r.LastEventID.UUID,
		PreviousEventID: before.LastEventID.UUID,
		AggregateType:   at.AggregateType,
		AggregateID:     at.AggregateID,
		Type:            name,
		Version:         at.Version,
		SchemaVersion:   schemaVersion,
		OccurredAt:      r.UpdatedAt,
		TenantID:        r.TenantID,
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
