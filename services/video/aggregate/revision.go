package aggregate

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
)

// MaxSeconds is the limit of every duration, ten years. A longer duration is a mistake in the unit.
const MaxSeconds = 10 * 365 * 24 * 60 * 60

// Revision is the part that the rows of all aggregates have. A row that never existed has the zero
// Revision.
type Revision struct {
	Version   int64      `json:"version"`    // begins at 1 and grows by 1 with each change
	CreatedAt time.Time  `json:"created_at"` // of the last creation; a row may be put again after its deletion
	UpdatedAt time.Time  `json:"updated_at"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // on tombstones only
	// LastEventID is the id of the event that made Version. It is NULL in rows that were written
	// before the service stored these ids.
	LastEventID uuid.NullUUID `json:"-"`
	// TenantID is the tenant that the row belongs to, from its first version on.
	TenantID string `json:"-"`
	// Epoch is the owner's epoch when the row was read or written. It is not part of the row.
	Epoch int64 `json:"-"`
}

func (r *Revision) complete(tenant string, epoch int64) { r.TenantID, r.Epoch = tenant, epoch }

// Exists reports whether there is a row and it is not a tombstone.
func (r Revision) Exists() bool { return r.Version > 0 && r.DeletedAt == nil }

// Next returns the revision that follows r, with the id of a new event. If there is no row at r, or
// a tombstone, Next counts as a creation of the row.
func (r Revision) Next() Revision {
	next := Revision{
		Version: r.Version + 1, CreatedAt: r.CreatedAt, UpdatedAt: eventing.NextTime(r.UpdatedAt),
		LastEventID: uuid.NullUUID{UUID: NewID(), Valid: true}, TenantID: r.TenantID, Epoch: r.Epoch,
	}
	if !r.Exists() {
		next.CreatedAt = next.UpdatedAt
	}
	return next
}

// Tombstone returns the revision that follows r if the new event is a deletion.
func (r Revision) Tombstone() Revision {
	next := r.Next()
	next.DeletedAt = new(next.UpdatedAt)
	return next
}

// Check returns an error if the row never existed or was deleted. kind is the aggregate's type.
func (r Revision) Check(kind string) error {
	switch {
	case r.Version == 0:
		return problem.New(problem.CodeNotFound, strings.ToUpper(kind)+"_NOT_FOUND", "There is no such "+kind+".")
	case r.DeletedAt != nil:
		e := problem.New(problem.CodeGone, strings.ToUpper(kind)+"_DELETED", "The "+kind+" was deleted.")
		e.Extra = map[string]any{"version": r.Version, "deleted_at": *r.DeletedAt}
		return e
	}
	return nil
}

// CheckVersion returns an error if want does not accept the row's version. It does not check whether
// the row exists.
func (r Revision) CheckVersion(kind string, want rest.Condition) error {
	if want.Accepts(r.Version) {
		return nil
	}
	detail := fmt.Sprintf("The %s is at version %d, which is not one that the request requires.", kind, r.Version)
	if want.Weak() {
		detail += " A weak tag never matches: send the version in quotes."
	}
	e := problem.New(problem.CodeStale, "VERSION_MISMATCH", detail)
	e.Extra = map[string]any{"version": r.Version}
	return e
}

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

// schemaVersion is the schema version of the envelopes of all aggregates.
const schemaVersion = 1

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

// Micros returns t as the database stores it, in UTC and whole microseconds.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// NewID returns a UUID of version 7. These ids sort by time, so that new rows go to the end of the
// index and the newest rows are one range of it. NewID cannot fail, because Go's randomness cannot.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// CheckIDs returns an error unless ids has 1 to [consistency.MaxPositions] UUIDs. field is the name of
// the request's field with ids. The limit is that of a consistency token.
func CheckIDs(field string, ids []string) error {
	var found problem.Violations
	found.Require(1 <= len(ids) && len(ids) <= consistency.MaxPositions, field,
		fmt.Sprintf("must be 1 to %d ids", consistency.MaxPositions))
	for _, id := range ids[:min(len(ids), consistency.MaxPositions)] {
		found.UUID(field, id)
	}
	return found.Err()
}
