package inbox

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

// Which build has the whole row after a change: revisions 1, 2 and 3 understand more and
// more.
func TestCompletenessAfterAChange(t *testing.T) {
	t.Parallel()
	whole, lacking := func(r int64) Completeness { return Completeness{Revision: r} }, func(r int64) Completeness {
		return Completeness{Revision: r, Incomplete: true}
	}
	for _, c := range []struct {
		name    string
		before  Completeness
		kind    Kind
		by      int64
		partial bool
		want    Completeness
	}{
		{"a new row", whole(0), Created, 2, false, whole(2)},
		{"a new row, of which a part is understood", whole(0), Created, 2, true, lacking(2)},
		{"a part of a row", whole(2), Updated, 2, false, whole(2)},
		{"a part that is understood in part", whole(2), Updated, 2, true, lacking(2)},
		{"a part of a row from before the record", whole(0), Updated, 2, false, whole(2)},
		{"a part leaves the rest incomplete", lacking(1), Updated, 2, false, lacking(1)},
		{"also where it is itself partial", lacking(1), Updated, 2, true, lacking(1)},
		{"an older build changes a part that it knows", whole(3), Updated, 2, false, whole(3)},
		{"and one that it does not know", whole(3), Updated, 2, true, lacking(2)},
		{"an older build changes an incomplete row", lacking(3), Updated, 2, false, lacking(2)},
		{"everything makes a row complete", lacking(1), Put, 2, false, whole(2)},
		{"the owner's state likewise", lacking(1), Snapshot, 2, false, whole(2)},
		{"the owner's state in part", lacking(1), Snapshot, 2, true, lacking(2)},
		{"an older build cannot clear what it does not know", whole(3), Put, 2, false, lacking(2)},
		{"not even in a tombstone", whole(3), Deleted, 2, false, lacking(2)},
		{"a tombstone", lacking(2), Deleted, 2, false, whole(2)},
	} {
		if got := c.before.After(Change{Kind: c.kind, Revision: c.by, Partial: c.partial}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// An incomplete row takes its owner's state of the same version, from a build that
// understands more.
func TestAdoptCompletesARow(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	id := uuid.UUID{1}
	row := Position{Epoch: 1, Version: 4, EventID: id, At: at}
	for _, c := range []struct {
		name     string
		row      Completeness
		revision int64
		version  int64
		want     Outcome
	}{
		{"a complete row", Completeness{Revision: 1}, 2, 4, Stale},
		{"of a lower revision", Completeness{1, true}, 2, 4, Applied},
		{"of this revision", Completeness{2, true}, 2, 4, Stale},
		{"of a higher revision", Completeness{3, true}, 2, 4, Stale},
		{"an owner that is behind the row", Completeness{1, true}, 2, 3, Stale},
	} {
		p := row
		p.Completeness = c.row
		state := Change{Kind: Snapshot, Revision: c.revision, Event: eventing.Event{Epoch: 1, Version: c.version, ID: id, OccurredAt: at}}
		if got := Adopt(p, state, time.Time{}); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
