package eventing

import (
	"fmt"
	"strconv"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"
)

// The attributes of a message. The data of a message is Event.Payload, and its ordering key is
// Event.AggregateID.
const (
	AttrEventID       = "event_id"
	AttrEventType     = "event_type"
	AttrAggregateType = "aggregate_type"
	AttrAggregateID   = "aggregate_id"
	AttrVersion       = "version"
	AttrSchemaVersion = "schema_version"
	AttrOccurredAt    = "occurred_at"
	AttrTenantID      = "tenant_id"
	AttrEpoch         = "epoch"
	AttrTraceParent   = "traceparent"
	// AttrPreviousEventID is absent where Event.PreviousEventID is zero.
	AttrPreviousEventID = "previous_event_id"
)

// Message returns e as a message of Pub/Sub.
func (e Event) Message() *pubsubpb.PubsubMessage {
	attrs := map[string]string{
		AttrEventID:       e.ID.String(),
		AttrEventType:     e.Type,
		AttrAggregateType: e.AggregateType,
		AttrAggregateID:   e.AggregateID,
		AttrVersion:       strconv.FormatInt(e.Version, 10),
		AttrSchemaVersion: strconv.Itoa(e.SchemaVersion),
		AttrOccurredAt:    e.OccurredAt.UTC().Format(time.RFC3339Nano),
		AttrEpoch:         strconv.FormatInt(e.Epoch, 10),
		AttrTenantID:      e.TenantID,
	}
	if e.TraceParent != "" {
		attrs[AttrTraceParent] = e.TraceParent
	}
	if e.PreviousEventID != uuid.Nil {
		attrs[AttrPreviousEventID] = e.PreviousEventID.String()
	}
	return &pubsubpb.PubsubMessage{Data: e.Payload, Attributes: attrs, OrderingKey: e.AggregateID}
}

// ParseMessage is the inverse of Event.Message. Its error names the invalid attribute, and is
// permanent, because a retry cannot fix the message.
func ParseMessage(data []byte, attrs map[string]string) (Event, error) {
	p := &attrParser{attrs: attrs}
	e := Event{
		ID:            parse(p, AttrEventID, uuid.Parse),
		AggregateType: attrs[AttrAggregateType],
		AggregateID:   attrs[AttrAggregateID],
		Type:          attrs[AttrEventType],
		Version:       parse(p, AttrVersion, parseInt),
		SchemaVersion: int(parse(p, AttrSchemaVersion, parseInt)),
		Payload:       data,
		OccurredAt:    parse(p, AttrOccurredAt, parseTime),
		TenantID:      attrs[AttrTenantID],
		Epoch:         FirstEpoch,
		TraceParent:   attrs[AttrTraceParent],
	}
	if _, ok := attrs[AttrEpoch]; ok { // messages from before the attribute was introduced do not have it
		e.Epoch = parse(p, AttrEpoch, parseInt)
	}
	if attrs[AttrPreviousEventID] != "" {
		e.PreviousEventID = parse(p, AttrPreviousEventID, uuid.Parse)
	}
	if p.err == nil {
		p.err = e.Validate()
	}
	if p.err != nil {
		return Event{}, Permanent(fmt.Errorf("message attributes: %w", p.err))
	}
	return e, nil
}

// attrParser keeps the first error, so that ParseMessage can parse all attributes in one literal.
type attrParser struct {
	attrs map[string]string
	err   error
}

func parse[T any](p *attrParser, name string, read func(string) (T, error)) T {
	value, err := read(p.attrs[name])
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", name, err)
	}
	return value
}

func parseInt(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UTC(), err
}
