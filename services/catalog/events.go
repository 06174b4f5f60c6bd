package catalog

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
)

// This file has the parts of events and of the owner's answers that all aggregates share.

const schemaVersion = 1

// parseID accepts only the canonical form, in upper or lower case. uuid.Parse accepts three more
// forms, and with these one video would have several addresses.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len(uuid.Nil.String()) {
		return uuid.Nil, fmt.Errorf("%.40q is not a UUID", s)
	}
	return id, nil
}

func isUUID(id string) bool {
	_, err := parseID(id)
	return err == nil
}

// isCanonical reports whether id is a UUID in the form in which its owner writes it.
func isCanonical(id string) bool {
	parsed, err := parseID(id)
	return err == nil && parsed.String() == id
}

// named returns an error unless isID accepts each id. An id may be any text, because a dead letter has the
// id that its producer wrote. The error is permanent, because no later answer of the owner makes the id right.
func named(ids []string, isID func(string) bool) error {
	for _, id := range ids {
		if !isID(id) {
			return eventing.Permanent(fmt.Errorf("the owner has no id like %q", id))
		}
	}
	return nil
}

// addressed checks the attributes aggregate_type, aggregate_id and schema_version of e. id is the
// canonical form of the aggregate's id, and err is the error of parsing e's aggregate_id.
func addressed(e eventing.Event, aggregateType, id string, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("aggregate_id: %w", err)
	case e.AggregateID != id: // another key for the same aggregate
		return fmt.Errorf("aggregate_id: %q is not written as %s", e.AggregateID, id)
	case e.AggregateType != aggregateType:
		return fmt.Errorf("aggregate_type: %q is unknown", e.AggregateType)
	case e.SchemaVersion != schemaVersion:
		return fmt.Errorf("schema_version: %d: %w", e.SchemaVersion, inbox.ErrUnknown)
	}
	return nil
}

// envelope is the message Event of a topic's protobuf package.
type envelope interface {
	proto.Message
	GetEventId() string
	GetAggregateType() string
	GetAggregateId() string
	GetVersion() int64
	GetAdditive() bool
}

// agrees returns an error unless e's attributes agree with the envelope, and with id and version,
// which are the id and the version in the payload.
func agrees(e eventing.Event, envelope envelope, id string, version int64) error {
	said := []any{envelope.GetEventId(), envelope.GetAggregateType(), envelope.GetAggregateId(), envelope.GetVersion(), id, version}
	want := []any{e.ID.String(), e.AggregateType, e.AggregateID, e.Version, e.AggregateID, e.Version}
	if !slices.Equal(said, want) {
		return fmt.Errorf("payload says %v, the attributes of a %s say %v", said, e.Type, want)
	}
	return validTimes(envelope.ProtoReflect())
}

// validTimes returns an error that names a time in m which is not in the years 1 to 9999. The format of
// the API has no other years, so a row with such a time could not be read.
func validTimes(m protoreflect.Message) (err error) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Message() == nil || field.IsList() || field.IsMap() {
			return true
		}
		if t, ok := value.Message().Interface().(*timestamppb.Timestamp); !ok {
			err = validTimes(value.Message())
		} else if invalid := t.CheckValid(); invalid != nil {
			err = fmt.Errorf("%s: %w", field.Name(), invalid)
		}
		return err == nil
	})
	return err
}

// additive returns the change of an event whose type this build does not know. The change sets no
// field that the build knows. The error is inbox.ErrUnknown unless the envelope says that e is
// additive.
func additive(e eventing.Event, envelope envelope, revision int64) (inbox.Change, error) {
	if !envelope.GetAdditive() {
		return inbox.Change{}, fmt.Errorf("event_type: %q: %w", e.Type, inbox.ErrUnknown)
	}
	err := agrees(e, envelope, e.AggregateID, e.Version)
	return inbox.Change{Event: e, Kind: inbox.Updated, Revision: revision, Partial: true}, err
}

// snapshot returns row, which is the owner's row at the position at, as a change. The kind of the
// change is alive, or inbox.Deleted if the row is a tombstone.
func snapshot(alive inbox.Kind, row any, aggregateType, id string, at inbox.Position) inbox.Change {
	c := inbox.Change{Kind: alive, Payload: row, Revision: at.Revision, Partial: at.Incomplete, Event: eventing.Event{
		ID: at.EventID, AggregateType: aggregateType, AggregateID: id, TenantID: at.Tenant,
		Epoch: at.Epoch, Version: at.Version, OccurredAt: at.At,
	}}
	if at.Deleted {
		c.Kind = inbox.Deleted
	}
	return c
}

// unlisted returns the error of a call that lists the owner's rows. The error is permanent if the
// owner's release does not have that call.
func unlisted(err error) error {
	if status.Code(err) == codes.Unimplemented {
		return eventing.Permanent(fmt.Errorf("the owner's release does not list its rows: %w", err))
	}
	return fmt.Errorf("list the owner's rows: %w", err)
}

// pageOf returns a page of the owner's rows. owned converts each row.
func pageOf[M, S any](
	answer interface {
		GetNext() string
		GetAsOf() *timestamppb.Timestamp
		GetEstimatedRows() int64
	}, rows []M, owned func(M) (S, error),
) (page projection.OwnersPage[S], err error) {
	page = projection.OwnersPage[S]{Next: answer.GetNext(), AsOf: asOf(answer), Estimate: answer.GetEstimatedRows()}
	for _, row := range rows {
		s, err := owned(row)
		if err != nil {
			return page, err
		}
		page.Rows = append(page.Rows, s)
	}
	return page, nil
}

// asOf returns the time of an answer, or the zero time if the owner did not know the time.
func asOf(answer interface{ GetAsOf() *timestamppb.Timestamp }) time.Time {
	if t := answer.GetAsOf(); t != nil {
		return t.AsTime()
	}
	return time.Time{}
}

// timestamp returns t for a message. If t is nil, the time is unknown and the field stays unset.
func timestamp(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

// timeOf returns the time in a message, in UTC. If the field is unset, the time is unknown, and
// timeOf returns nil.
func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.AsTime())
}
