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

// State is the part of a row that preconditions are about.
type State struct {
	Version   int64 // 0 where there never was a row
	DeletedAt *time.Time
}

// Check returns an error if the row of that kind ("video") cannot be changed or shown: it
// never existed, was deleted, or is not at version want; 0 or less accepts any version.
func (s State) Check(kind string, want int64) error {
	switch {
	case s.Version == 0:
		return problem.New(problem.CodeNotFound, strings.ToUpper(kind)+"_NOT_FOUND", "There is no such "+kind+".")
	case s.DeletedAt != nil:
		e := problem.New(problem.CodeGone, strings.ToUpper(kind)+"_DELETED", "The "+kind+" was deleted.")
		e.Extra = map[string]any{"version": s.Version, "deleted_at": *s.DeletedAt}
		return e
	}
	return s.CheckVersion(kind, want)
}

// CheckVersion returns an error if the row, which may be deleted or absent, is not at
// version want; 0 or less accepts any version.
func (s State) CheckVersion(kind string, want int64) error {
	if want <= 0 || want == s.Version {
		return nil
	}
	e := problem.New(problem.CodeStale, "VERSION_MISMATCH", fmt.Sprintf("The %s is at version %d, not %d.", kind, s.Version, want))
	e.Extra = map[string]any{"version": s.Version}
	return e
}

// Now has the precision that the database keeps.
func Now() time.Time { return Micros(time.Now()) }

// After is now, or just after t if the clock was set back or another instance's clock
// is ahead: a row's times never decrease with its version.
func After(t time.Time) time.Time {
	t = t.Add(time.Microsecond)
	if clock := Now(); clock.After(t) {
		return clock
	}
	return t
}

// Micros is t as the database keeps it.
func Micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// NewID sorts by time, so that new rows go to the end of the index and the
// newest rows are a range of it. Its randomness cannot fail.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// CheckVideoIDs fails unless video_ids are UUIDs, at least one and at most as many as a
// token may name aggregates.
func CheckVideoIDs(ids []string) error {
	var found problem.Violations
	found.Require(1 <= len(ids) && len(ids) <= consistency.MaxPositions, "video_ids",
		fmt.Sprintf("must be 1 to %d ids", consistency.MaxPositions))
	for _, id := range ids[:min(len(ids), consistency.MaxPositions)] {
		found.UUID("video_ids", id)
	}
	return found.Err()
}
