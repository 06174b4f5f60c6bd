package aggregate

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// schemaVersion is the schema version of the envelopes of all aggregates.
const schemaVersion = 1

// EventID returns the id of the event that made r, as text for messages. If that event is unknown,
// the text is empty.
func (r Revision) EventID() string {
	if !r.LastEventID.Valid {
		return ""
	}
	return r.LastEventID.UUID.String()
}

// Position returns the position of the row at revision r.
func (r Revision) Position(aggregateType, id string) consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: id, Epoch: r.Epoch, Version: r.Version}
}

// Token returns the consistency token for the position at, which is the position of the row at
// revision r.
func (r Revision) Token(at consistency.Position) string {
	return consistency.Token{Tenant: r.TenantID, Positions: []consistency.Position{at}}.String()
}

// Event returns the event of the change from the revision before to the revision r, without a
// payload. at is the position of the row at r. name is the type of the event.
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

// Encode encodes envelope, and returns e with the encoded envelope as its payload.
func Encode(e eventing.Event, envelope proto.Message) (eventing.Event, error) {
	var err error
	if e.Payload, err = proto.Marshal(envelope); err != nil {
		return eventing.Event{}, fmt.Errorf("encode %s: %w", e.Type, err)
	}
	return e, nil
}
