package eventing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// FirstEpoch is the epoch of an owner whose database was never restored to an earlier point in
// time. After a restore the owner assigns some versions a second time, so the operator begins a later
// epoch. The events of a later epoch are newer than all events of earlier epochs, because consumers
// compare the epochs of two events before their versions. A service reads its present epoch with
// outbox.Epoch and not from this constant, because outbox.Append refuses events of an earlier epoch.
// The constant is right in tests, and for databases that an operator never restores.
const FirstEpoch = 1

// DefaultTenant owns all aggregates of a system without tenants.
const DefaultTenant = "default"

// Skipped is the Type of an event that the owner's operator gave up. Skipped replaces the event's
// original Type, and the event loses its payload. So a consumer takes the owner's state instead.
const Skipped = "Skipped"

const (
	// MaxKeyBytes is the greatest length of an aggregate id, in bytes. The id is the ordering key,
	// and Pub/Sub limits an ordering key to 1 KiB.
	MaxKeyBytes = 1024
	// maxAttributeBytes is Pub/Sub's limit for the value of an attribute
	// (https://cloud.google.com/pubsub/quotas#resource_limits).
	maxAttributeBytes = 1024
)

// Event is one change of one aggregate, as the owner committed it.
type Event struct {
	// ID is the same in every sending and delivery of the event.
	ID uuid.UUID
	// PreviousEventID is the ID of the aggregate's event at Version-1. If a consumer has another
	// event at that version, its history differs from the owner's. PreviousEventID is zero for the
	// first event of an aggregate, and if the owner does not know the previous event.
	PreviousEventID uuid.UUID
	// AggregateType is the type of the aggregate that changed. It contains no "/", because Key joins type
	// and id with a "/".
	AggregateType string
	// AggregateID is the id of the aggregate that changed, and the ordering key.
	AggregateID string
	// Type is the kind of change, such as "VideoCreated".
	Type string
	// Version is the aggregate's version after the change. The first event has version 1, and each
	// event raises the version by 1. Version is assigned while the aggregate's row is locked.
	// Within an epoch, only Version gives the order of an aggregate's events.
	Version int64
	// SchemaVersion is the version of Payload's schema.
	SchemaVersion int
	// Payload is the body, which consumers decode. It is sent unchanged.
	Payload []byte
	// OccurredAt is the time of the change by the owner's clock, in UTC with microseconds. The owner must
	// let OccurredAt grow with the versions of an aggregate, even if clocks differ or step back: see
	// NextTime. If an event has a later time than an event of a higher version, consumers conclude that
	// the two events are from different histories, because the owner has lost commits.
	OccurredAt time.Time
	// TenantID is the tenant that owns the aggregate. An aggregate never changes its tenant. Empty
	// means DefaultTenant.
	TenantID string
	// Epoch is the epoch that the owner was in when it wrote the event. See FirstEpoch.
	Epoch int64
	// TraceParent is the W3C trace context that the event was created in. If it is empty,
	// outbox.Append takes the trace context of its caller.
	TraceParent string
	// SourceEventID is the ID of the consumed event that led to this event. A service sets it if
	// the service consumes and emits in one transaction. Otherwise SourceEventID is zero. For each
	// source event the outbox accepts only one event of an aggregate. SourceEventID is not sent.
	SourceEventID uuid.UUID
}

// NextTime returns the OccurredAt of an aggregate's next event. previous is the OccurredAt of the
// aggregate's newest event. The result is the present time, in UTC with microseconds, or one microsecond
// after previous if that is later. So the times grow with the versions even if the clock was set back, or
// the clock of another instance is ahead.
func NextTime(previous time.Time) time.Time {
	least := previous.UTC().Add(time.Microsecond).Truncate(time.Microsecond)
	if now := time.Now().UTC().Truncate(time.Microsecond); now.After(least) {
		return now
	}
	return least
}

// Tenant returns TenantID, or DefaultTenant if TenantID is empty.
func (e Event) Tenant() string { return cmp.Or(e.TenantID, DefaultTenant) }

// Validate returns an error that names the first field that cannot be sent, or nil.
func (e Event) Validate() error {
	switch {
	case e.ID == uuid.Nil:
		return errors.New("event_id: missing")
	case e.AggregateType == "":
		return errors.New("aggregate_type: missing")
	case strings.Contains(e.AggregateType, keySeparator):
		return fmt.Errorf("aggregate_type: %q has a %q, which separates type and id", e.AggregateType, keySeparator)
	case e.AggregateID == "":
		return errors.New("aggregate_id: missing")
	case len(e.AggregateID) > MaxKeyBytes:
		return fmt.Errorf("aggregate_id: %d bytes, at most %d fit an ordering key", len(e.AggregateID), MaxKeyBytes)
	case e.Type == "":
		return errors.New("event_type: missing")
	case e.Version < 1:
		return fmt.Errorf("version: %d, versions begin at 1", e.Version)
	case e.SchemaVersion < 1 || e.SchemaVersion > math.MaxInt32:
		return fmt.Errorf("schema_version: %d, schema versions go from 1 to %d", e.SchemaVersion, math.MaxInt32)
	case e.Epoch < 1:
		return fmt.Errorf("epoch: %d, epochs begin at 1", e.Epoch)
	}
	if err := validateTime(e.OccurredAt); err != nil {
		return err
	}
	return e.validateTexts()
}

func validateTime(at time.Time) error {
	year := at.UTC().Year()
	switch {
	case at.IsZero():
		return errors.New("occurred_at: missing")
	case year < 1 || year > 9999:
		return fmt.Errorf("occurred_at: year %d, the format has the years 1 to 9999", year)
	}
	return nil
}

func (e Event) validateTexts() error {
	for _, text := range [...]struct{ name, value string }{
		{AttrAggregateType, e.AggregateType},
		{AttrAggregateID, e.AggregateID},
		{AttrEventType, e.Type},
		{AttrTenantID, e.TenantID},
		{AttrTraceParent, e.TraceParent},
	} {
		if Storable(text.value) != text.value {
			return fmt.Errorf("%s: not UTF-8, or with a NUL: no database takes it", text.name)
		}
		if len(text.value) > maxAttributeBytes {
			return fmt.Errorf("%s: %d bytes, at most %d fit an attribute", text.name, len(text.value), maxAttributeBytes)
		}
	}
	return nil
}

// Storable returns s as a text that Postgres accepts. A question mark replaces each run of invalid
// UTF-8, and each NUL, although NUL is valid UTF-8.
func Storable(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
}

// maxReasonBytes is the greatest length of the result of Reason. It is below Pub/Sub's limit of 1,024
// bytes for the value of an attribute.
const maxReasonBytes = 1000

// Reason returns s in a form that an attribute and a column can keep. The result is Storable, and
// is cut off after 1,000 bytes.
func Reason(s string) string {
	s = Storable(s)
	if len(s) > maxReasonBytes {
		s = strings.ToValidUTF8(s[:maxReasonBytes], "")
	}
	return s
}

// LogAttrs returns the fields of every log line that concerns e. The fields do not include the
// trace, because a log line takes its trace from its context (InTrace). LogAttrs leaves out the
// fields that e does not have. If e comes from a message that is no event, LogAttrs returns nil.
func (e Event) LogAttrs() []any {
	if e.AggregateID == "" {
		return nil
	}
	attrs := []any{
		AttrAggregateType, e.AggregateType,
		AttrAggregateID, e.AggregateID,
		"ordering_key", e.AggregateID,
		AttrVersion, e.Version,
		AttrEpoch, e.Epoch,
	}
	if e.ID != uuid.Nil {
		attrs = append(attrs, AttrEventID, e.ID.String())
	}
	if e.Type != "" {
		attrs = append(attrs, AttrEventType, e.Type)
	}
	return attrs
}

// Key identifies the aggregate within its service.
func (e Event) Key() string { return Key(e.AggregateType, e.AggregateID) }

// keySeparator occurs in no aggregate type, so two aggregates never have the same key.
const keySeparator = "/"

// Key identifies an aggregate within its service.
func Key(aggregateType, aggregateID string) string { return aggregateType + keySeparator + aggregateID }

// Permanent marks err as an error that a retry cannot fix. So a consumer sends the message to its
// dead letters at once, and does not try again.
func Permanent(err error) error { return &permanentError{err} }

// IsPermanent reports whether err or an error it wraps came from Permanent.
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }
