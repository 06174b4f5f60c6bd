package backlog

import (
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Row is an event as a hand-written loop reads it.
type Row struct {
	ID            uuid.UUID
	AggregateType string
	AggregateID   string
	EventType     string
	Version       int64
	SchemaVersion int
	Payload       []byte
	OccurredAt    time.Time
}

// Columns are the columns of a Row, from the table o.
const Columns = `o.id, o.aggregate_type, o.aggregate_id, o.event_type, o.version, o.schema_version, o.payload, o.occurred_at`

// Message returns a message with the attributes of the source document.
func (r Row) Message() *pubsubpb.PubsubMessage {
	return &pubsubpb.PubsubMessage{Data: r.Payload, OrderingKey: r.AggregateID, Attributes: map[string]string{
		eventing.AttrEventID:       r.ID.String(),
		eventing.AttrEventType:     r.EventType,
		eventing.AttrAggregateID:   r.AggregateID,
		eventing.AttrVersion:       strconv.FormatInt(r.Version, 10),
		eventing.AttrSchemaVersion: strconv.Itoa(r.SchemaVersion),
		eventing.AttrOccurredAt:    r.OccurredAt.Format(time.RFC3339Nano),
	}}
}
