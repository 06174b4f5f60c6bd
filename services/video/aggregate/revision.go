package aggregate

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// MaxSeconds is ten years, the limit of every duration: more is a mistake in the unit.
const MaxSeconds = 10 * 365 * 24 * 60 * 60

// Revision is the part that the rows of all aggregates have. The zero Revision is that of
// a row that never existed.
type Revision struct {
	Version   int64      `json:"version"`    // 1, and one more with each change
	CreatedAt time.Time  `json:"created_at"` // of this life: a row may be put again after its deletion
	UpdatedAt time.Time  `json:"updated_at"`
	DeletedAt *time.Time `json:"deleted_at,omitempty"` // on tombstones only
	// LastEventID is the event that made Version; unknown in rows from before it was
	// kept.
	LastEventID uuid.NullUUID `json:"-"`
	// TenantID is the tenant that the row belongs to, from its first version on.
	TenantID string `json:"-"`
	// Epoch is the owner's, not the row's: the one in which the row was read or written.
	Epoch int64 `json:"-"`
}

func (r *Revision) complete(tenant string, epoch int64) { r.TenantID, r.Epoch = tenant, epoch }

// Exists is false of a tombstone, and of a row that never existed.
func (r Revision) Exists() bool { return r.Version > 0 && r.DeletedAt == nil }

// Next is the revision after r, which a new event makes.
func (r Revision) Next() Revision {
	next := Revision{
		Version: r.Version + 1, CreatedAt: r.CreatedAt, UpdatedAt: after(r.UpdatedAt),
		LastEventID: uuid.NullUUID{UUID: NewID(), Valid: true}, TenantID: r.TenantID, Epoch: r.Epoch,
	}
	if !r.Exists() {
		next.CreatedAt = next.UpdatedAt
	}
	return next
}

// Tombstone is Next of a deletion.
func (r Revision) Tombstone() Revision {
	next := r.Next()
	next.DeletedAt = new(next.UpdatedAt)
	return next
}

// Check returns an error if the row of that type of aggregate cannot be changed or shown: it
// never existed, was deleted, or is not at version want; 0 or less accepts any version.
func (r Revision) Check(kind string, want int64) error {
	switch {
	case r.Version == 0:
		return problem.New(problem.CodeNotFound, strings.ToUpper(kind)+"_NOT_FOUND", "There is no such "+kind+".")
	case r.DeletedAt != nil:
		e := problem.New(problem.CodeGone, strings.ToUpper(kind)+"_DELETED", "The "+kind+" was deleted.")
		e.Extra = map[string]any{"version": r.Version, "deleted_at": *r.DeletedAt}
		return e
	}
	return r.CheckVersion(kind, want)
}

// CheckVersion returns an error if the row, which may be deleted or absent, is not at
// version want; 0 or less accepts any version.
func (r Revision) CheckVersion(kind string, want int64) error {
	if want <= 0 || want == r.Version {
		return nil
	}
	e := problem.New(problem.CodeStale, "VERSION_MISMATCH", fmt.Sprintf("The %s is at version %d, not %d.", kind, r.Version, want))
	e.Extra = map[string]any{"version": r.Version}
	return e
}

// after is now, or just after t if the clock was set back or another instance's clock
// is ahead: a row's times never decrease with its version.
func after(t time.Time) time.Time {
	t = t.Add(time.Microsecond)
	if clock := Micros(time.Now()); clock.After(t) {
		return clock
	}
	return t
}

// Micros is t as the database keeps it.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// NewID sorts by time, so that new rows go to the end of the index and the
// newest rows are a range of it. Its randomness cannot fail.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// CheckVideoIDs fails unless ids, the field video_ids of a request, are 1 to
// [consistency.MaxPositions] UUIDs: a token names no more aggregates.
func CheckVideoIDs(ids []string) error {
	var found problem.Violations
	found.Require(1 <= len(ids) && len(ids) <= consistency.MaxPositions, "video_ids",
		fmt.Sprintf("must be 1 to %d ids", consistency.MaxPositions))
	for _, id := range ids[:min(len(ids), consistency.MaxPositions)] {
		found.UUID("video_ids", id)
	}
	return found.Err()
}
