package catalog

import (
	"cmp"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
)

// Versioned is the part of a row that the rows of all types have. Each column has the name of its
// field.
type Versioned struct {
	// Version is 0 if there is neither an aggregate nor a tombstone.
	Version   int64      `json:"version"`
	Epoch     int64      `json:"-"`
	CreatedAt *time.Time `json:"created_at"` // nil on tombstones
	UpdatedAt time.Time  `json:"updated_at"`
	DeletedAt *time.Time `json:"-"`
	TenantID  string     `json:"-"`
	// LastEventID is the id of the event that made Version, if that id is known. LastEventID and
	// Completeness are read only when the row is locked, because readers do not need them.
	LastEventID        uuid.NullUUID `json:"-"`
	inbox.Completeness `json:"-"`
}

// versionColumns are the columns of a Versioned that readers need. lockedColumns are its other columns.
// versionTypes are the types of both.
const (
	versionColumns = "version, epoch, created_at, updated_at, deleted_at, tenant_id"
	lockedColumns  = "last_event_id, revision, incomplete"
	versionTypes   = "bigint, bigint, timestamptz, timestamptz, timestamptz, text, uuid, bigint, bool"
)

func (r Versioned) versioned() Versioned { return r }

// positionOf returns the position of the row as that of an aggregate, for readers.
func (r Versioned) positionOf(aggregateType, id string) consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: id, Epoch: r.Epoch, Version: r.Version}
}

// at returns the position of the row, for the rules of package inbox.
func (r Versioned) at() inbox.Position {
	return inbox.Position{
		Epoch: r.Epoch, Version: r.Version, Deleted: r.DeletedAt != nil, EventID: r.LastEventID.UUID, At: r.UpdatedAt,
		Tenant: r.TenantID, Completeness: r.Completeness,
	}
}

// moved returns the Versioned of a row that was r before the change c. created and deleted are the
// times of the row after c.
func (r Versioned) moved(c inbox.Change, created, deleted *time.Time) Versioned {
	e := c.Event
	return Versioned{
		Version: e.Version, Epoch: e.Epoch, CreatedAt: created, UpdatedAt: e.OccurredAt, DeletedAt: deleted,
		// e names no tenant in two cases. Either the owner's release that made e had no tenants yet,
		// or the owner no longer knows the aggregate.
		TenantID:    cmp.Or(e.TenantID, r.TenantID, eventing.DefaultTenant),
		LastEventID: known(e.ID), Completeness: r.After(c),
	}
}

// known returns an event's id for a row, in which an unknown id is NULL.
func known(id uuid.UUID) uuid.NullUUID { return uuid.NullUUID{UUID: id, Valid: id != uuid.Nil} }

// ownedMessage is a row in an answer of the owner.
type ownedMessage interface {
	proto.Message
	GetVersion() int64
	GetEpoch() int64
	GetCreatedAt() *timestamppb.Timestamp
	GetUpdatedAt() *timestamppb.Timestamp
	GetDeletedAt() *timestamppb.Timestamp
	GetLastEventId() string
	GetTenantId() string
}

// ownedVersion returns the Versioned of a row of the owner. revision is the revision of this build
// for the type.
func ownedVersion(row ownedMessage, revision int64) (r Versioned, err error) {
	if row.GetVersion() < 1 || row.GetEpoch() < 1 {
		return r, fmt.Errorf("%w: it has version %d, epoch %d", consistency.ErrOwnerUnavailable, row.GetVersion(), row.GetEpoch())
	}
	if r.LastEventID, err = lastEvent(row.GetLastEventId()); err != nil {
		return r, err
	}
	if err := validTimes(row.ProtoReflect()); err != nil {
		return r, fmt.Errorf("%w: %w", consistency.ErrOwnerUnavailable, err)
	}
	r.Version, r.Epoch, r.TenantID = row.GetVersion(), row.GetEpoch(), row.GetTenantId()
	r.CreatedAt, r.UpdatedAt, r.DeletedAt = timeOf(row.GetCreatedAt()), row.GetUpdatedAt().AsTime(), timeOf(row.GetDeletedAt())
	r.Completeness = inbox.Completeness{Revision: revision, Incomplete: projection.HasUnknown(row)}
	return r, nil
}

// lastEvent parses a last_event_id. If the owner does not know the event, id is empty.
func lastEvent(id string) (uuid.NullUUID, error) {
	if id == "" {
		return uuid.NullUUID{}, nil
	}
	last, err := uuid.Parse(id)
	if err != nil {
		return uuid.NullUUID{}, fmt.Errorf("%w: last_event_id: %w", consistency.ErrOwnerUnavailable, err)
	}
	return known(last), nil
}
