package inbox

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	alive := func(epoch, version int64) Position { return Position{Epoch: epoch, Version: version} }
	dead := func(epoch, version int64) Position { return Position{Epoch: epoch, Version: version, Deleted: true} }
	for _, tc := range []struct {
		name           string
		at             Position
		kind           Kind
		epoch, version int64
		want           Outcome
	}{
		{"created on nothing", Position{}, Created, 1, 1, Applied},
		{"created again", alive(1, 1), Created, 1, 1, Stale},
		{"created after updates", alive(1, 4), Created, 1, 1, Stale},
		{"created after delete", dead(1, 2), Created, 1, 1, Stale},
		{"created that is not the first", Position{}, Created, 1, 3, Gap},
		{"created as a successor", alive(1, 2), Created, 1, 3, Gap},
		{"created beyond a tombstone", dead(1, 2), Created, 1, 3, Gap},
		{"created in a new epoch over an old life", alive(1, 2), Created, 2, 1, Gap},
		{"updated on its predecessor", alive(1, 1), Updated, 1, 2, Applied},
		{"updated again", alive(1, 2), Updated, 1, 2, Stale},
		{"updated late", alive(1, 7), Updated, 1, 2, Stale},
		{"updated over a gap", alive(1, 1), Updated, 1, 3, Gap},
		{"updated on nothing", Position{}, Updated, 1, 2, Gap},
		{"updated as version 1 on nothing", Position{}, Updated, 1, 1, Gap},
		{"updated late after delete", dead(1, 3), Updated, 1, 2, Stale},
		{"updated beyond a tombstone", dead(1, 3), Updated, 1, 4, Gap},
		{"updated in a new epoch, next version", alive(1, 3), Updated, 2, 4, Gap},
		{"updated in an old epoch, next version", alive(2, 3), Updated, 1, 4, Stale},
		{"deleted on its predecessor", alive(1, 1), Deleted, 1, 2, Applied},
		{"deleted over a gap", alive(1, 1), Deleted, 1, 9, Applied},
		{"deleted on nothing", Position{}, Deleted, 1, 5, Applied},
		{"deleted again", dead(1, 5), Deleted, 1, 5, Stale},
		{"deleted late", alive(1, 6), Deleted, 1, 5, Stale},
		{"deleted in a new epoch", dead(1, 5), Deleted, 2, 3, Applied},
		{"deleted in an old epoch", alive(2, 1), Deleted, 1, 9, Stale},
		{"owner's state on nothing", Position{}, Snapshot, 1, 8, Applied},
		{"owner's state over a gap", alive(1, 3), Snapshot, 1, 8, Applied},
		{"owner's state again", alive(1, 8), Snapshot, 1, 8, Stale},
		{"owner's state late", alive(1, 9), Snapshot, 1, 8, Stale},
		{"owner's state on an older tombstone", dead(1, 7), Snapshot, 1, 8, Gap},
		{"owner's state behind a tombstone", dead(1, 9), Snapshot, 1, 8, Stale},
		{"owner restored to before the delete", dead(1, 9), Snapshot, 2, 8, Applied},
		{"owner's tombstone on nothing", Position{}, Deleted, 1, 8, Applied},
		{"owner's tombstone over a gap", alive(1, 2), Deleted, 1, 8, Applied},
		{"owner's tombstone on an older one", dead(1, 2), Deleted, 1, 8, Applied},
		{"owner's tombstone late", alive(1, 9), Deleted, 1, 8, Stale},
		{"put on nothing", Position{}, Put, 1, 1, Applied},
		{"put as a later version on nothing", Position{}, Put, 1, 8, Applied},
		{"put on its predecessor", alive(1, 1), Put, 1, 2, Applied},
		{"put over a gap", alive(1, 1), Put, 1, 8, Applied},
		{"put again", alive(1, 8), Put, 1, 8, Stale},
		{"put late", alive(1, 9), Put, 1, 8, Stale},
		{"put on a tombstone", dead(1, 7), Put, 1, 8, Applied},
		{"put late after a delete", dead(1, 9), Put, 1, 8, Stale},
		{"put in a new epoch", alive(1, 9), Put, 2, 3, Applied},
		{"put in an old epoch", dead(2, 1), Put, 1, 9, Stale},
		{"skipped on nothing", Position{}, Skipped, 1, 1, Gap},
		{"skipped on its predecessor", alive(1, 1), Skipped, 1, 2, Gap},
		{"skipped on a tombstone", dead(1, 1), Skipped, 1, 2, Gap},
		{"skipped late", alive(1, 2), Skipped, 1, 2, Stale},
		{"no kind at all", Position{}, 0, 1, 1, Gap},
	} {
		c := Change{Kind: tc.kind, Event: eventing.Event{Epoch: tc.epoch, Version: tc.version}}
		if got := Decide(tc.at, c); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// day is the day of the histories below; minute n of it is noon(n).
var day = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func noon(minutes int) time.Time { return day.Add(time.Duration(minutes) * time.Minute) }

// Names of events: those of the history that a copy has seen, and of another one.
var (
	unknown       uuid.UUID
	e1, e2, e3    = uuid.UUID{1}, uuid.UUID{2}, uuid.UUID{3}
	lost2, other3 = uuid.UUID{0xf2}, uuid.UUID{0xf3}
)

// An aggregate never changes its tenant. The owner decides whose event it is.
func TestDecideTakesNoEventOfAnotherTenant(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		row, event string
		epoch      int64
		want       Outcome
	}{
		{"acme", "acme", 1, Applied},
		{"acme", "", 1, Applied},
		{"", "bolt", 1, Applied},
		{"acme", "bolt", 1, Diverged},
		{"acme", "bolt", 2, Diverged},
	} {
		at := Position{Epoch: 1, Version: 2, EventID: e2, At: noon(2), Tenant: tc.row}
		e := eventing.Event{ID: e3, PreviousEventID: e2, Epoch: tc.epoch, Version: 3, OccurredAt: noon(3), TenantID: tc.event}
		if got := Decide(at, Change{Kind: Put, Event: e}); got != tc.want {
			t.Errorf("a row of %q and an event of %q in epoch %d: %v, want %v", tc.row, tc.event, tc.epoch, got, tc.want)
		}
		owner := Position{Epoch: 1, Version: 3, EventID: e3, At: noon(3), Tenant: tc.row}
		if err := Has(owner, e, noon(10)); errors.Is(err, ErrLost) != (tc.want == Diverged) {
			t.Errorf("an owner's row of %q and an event of %q: %v", tc.row, tc.event, err)
		}
	}
}

// An event of another history than the copy's is recognised, whichever arrives first, by
// the known ids and times of either. Unknown ones contradict nothing.
func TestDecideSeparatesHistories(t *testing.T) {
	t.Parallel()
	second := Position{Epoch: 1, Version: 2, EventID: e2, At: noon(2)}
	grave := second
	grave.Deleted = true
	nameless := Position{Epoch: 1, Version: 2, At: noon(2)}
	timeless := Position{Epoch: 1, Version: 2, EventID: e2}
	for _, tc := range []struct {
		name           string
		at             Position
		kind           Kind
		epoch, version int64
		id, previous   uuid.UUID
		minute         int
		want           Outcome
	}{
		{"the same event again", second, Updated, 1, 2, e2, e1, 2, Stale},
		{"another event of the version", second, Updated, 1, 2, lost2, e1, 4, Diverged},
		{"of the same time", second, Updated, 1, 2, lost2, e1, 2, Diverged},
		{"one that deletes", second, Deleted, 1, 2, lost2, e1, 4, Diverged},
		{"one that was skipped", second, Skipped, 1, 2, lost2, e1, 4, Diverged},
		{"on a tombstone", grave, Updated, 1, 2, lost2, e1, 4, Diverged},
		{"on a row of before ids were kept", nameless, Updated, 1, 2, lost2, e1, 2, Stale},
		{"of another time, on a row of before ids were kept", nameless, Updated, 1, 2, lost2, e1, 4, Diverged},
		{"the successor", second, Updated, 1, 3, e3, e2, 3, Applied},
		{"the successor, by a clock that is behind", second, Updated, 1, 3, e3, e2, 1, Applied},
		{"a version of an earlier time, after an unknown event", second, Updated, 1, 3, lost2, unknown, 1, Diverged},
		{"the successor of another event", second, Updated, 1, 3, other3, lost2, 5, Diverged},
		{"a deletion after another event", second, Deleted, 1, 3, other3, lost2, 5, Diverged},
		{"a put after another event", second, Put, 1, 3, other3, lost2, 5, Diverged},
		{"an update of what the copy has deleted", grave, Updated, 1, 3, other3, lost2, 5, Diverged},
		{"the successor of an unknown event", second, Updated, 1, 3, other3, unknown, 5, Applied},
		{"the successor on a row of before ids were kept", nameless, Updated, 1, 3, other3, lost2, 5, Applied},
		{"a later version, whose predecessor is not here", second, Updated, 1, 4, e3, lost2, 5, Gap},
		{"a later version of an earlier time", second, Put, 1, 4, lost2, unknown, 1, Diverged},
		{"a later version of an earlier time, which deletes", second, Deleted, 1, 9, lost2, unknown, 1, Diverged},
		{"a later version of the same time", second, Put, 1, 4, e3, unknown, 2, Applied},
		{"a later version of an earlier time, on a row of an unknown time", timeless, Put, 1, 4, lost2, unknown, 1, Applied},
		{"a later version of an earlier time, in the next epoch", second, Put, 2, 4, e3, unknown, 1, Applied},
		{"an earlier version", second, Updated, 1, 1, e1, unknown, 1, Stale},
		{"an earlier version of the same time", second, Updated, 1, 1, e1, unknown, 2, Stale},
		{"an earlier version of a later time", second, Updated, 1, 1, lost2, unknown, 3, Diverged},
		{"on a row of an unknown time", timeless, Updated, 1, 1, lost2, unknown, 3, Stale},
		{"another event of the version, in the next epoch", second, Put, 2, 2, lost2, e1, 4, Applied},
		{"another event of the version, in the epoch before", Position{Epoch: 2, Version: 2, EventID: e2}, Put, 1, 2, lost2, e1, 4, Stale},
		{"the next version of another event, in the next epoch", second, Put, 2, 3, other3, lost2, 5, Applied},
		{"an earlier version of a later time, in the epoch before", Position{Epoch: 2, Version: 2, EventID: e2, At: noon(2)},
			Put, 1, 1, lost2, e1, 4, Stale},
	} {
		c := Change{Kind: tc.kind, Event: eventing.Event{
			ID: tc.id, PreviousEventID: tc.previous, Epoch: tc.epoch, Version: tc.version, OccurredAt: noon(tc.minute),
		}}
		if got := Decide(tc.at, c); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// An owner that is behind is believed only when it cannot be a replica that lags: it has
// continued without the copy's last change, or its whole database is past it.
func TestAdopt(t *testing.T) {
	t.Parallel()
	at := func(epoch, version int64, id uuid.UUID, minute int) Position {
		return Position{Epoch: epoch, Version: version, EventID: id, At: noon(minute)}
	}
	dead := func(p Position) Position {
		p.Deleted = true
		return p
	}
	soon, justNotYet := noon(9).Add(lossTime).Add(1), noon(9).Add(lossTime)
	never := time.Time{}
	for _, tc := range []struct {
		name  string
		copy  Position
		kind  Kind
		owner Position
		asOf  time.Time
		want  Outcome
	}{
		{"nothing yet", Position{}, Snapshot, at(1, 3, e3, 3), never, Applied},
		{"a tombstone on nothing", Position{}, Deleted, at(1, 3, e3, 3), never, Applied},
		{"behind", at(1, 1, e1, 1), Snapshot, at(1, 3, e3, 3), never, Applied},
		{"the same", at(1, 3, e3, 3), Snapshot, at(1, 3, e3, 3), noon(99), Stale},
		{"neither knows the event", at(1, 3, unknown, 3), Snapshot, at(1, 3, unknown, 3), noon(99), Stale},
		{"the owner knows the event", at(1, 3, unknown, 3), Snapshot, at(1, 3, e3, 3), never, Applied},
		{"the copy alone knows the event", at(1, 3, e3, 3), Snapshot, at(1, 3, unknown, 3), never, Applied},
		{"another event of the version", at(1, 2, lost2, 2), Snapshot, at(1, 2, e2, 4), never, Diverged},
		{"of a later time here", at(1, 2, e2, 4), Snapshot, at(1, 2, lost2, 2), noon(4).Add(lossTime), Stale},
		{"of a later time here, long ago", at(1, 2, e2, 4), Snapshot, at(1, 2, lost2, 2), noon(4).Add(lossTime + 1), Diverged},
		{"a later version of an earlier time", at(1, 2, e2, 4), Snapshot, at(1, 3, e3, 3), noon(4).Add(lossTime), Stale},
		{"a later version of an earlier time, long ago", at(1, 2, e2, 4), Snapshot, at(1, 3, e3, 3), noon(4).Add(lossTime + 1), Applied},
		{"a later version of an earlier time, of an unknown instant", at(1, 2, e2, 4), Snapshot, at(1, 3, e3, 3), never, Applied},
		{"neither knows the event, which differs", at(1, 3, unknown, 3), Snapshot, at(1, 3, unknown, 4), never, Diverged},
		{"of a version that was deleted", dead(at(1, 2, lost2, 2)), Snapshot, at(1, 2, e2, 4), never, Diverged},
		{"the copy is further", at(1, 9, e3, 9), Snapshot, at(1, 2, e2, 2), never, Stale},
		{"the copy is further than a replica", at(1, 9, e3, 9), Snapshot, at(1, 2, e2, 2), justNotYet, Stale},
		{"the owner has lost it", at(1, 9, e3, 9), Snapshot, at(1, 2, e2, 2), soon, Diverged},
		{"the owner has gone on without it", at(1, 9, e3, 9), Snapshot, at(1, 2, e2, 10), never, Diverged},
		{"in the same instant", at(1, 9, e3, 9), Snapshot, at(1, 2, e2, 9), never, Stale},
		{"the owner deleted it without it", at(1, 9, e3, 9), Deleted, at(1, 2, e2, 10), never, Diverged},
		{"of an unknown time", Position{Epoch: 1, Version: 9}, Snapshot, at(1, 2, e2, 10), noon(99), Stale},
		{"the owner is in a later epoch", at(1, 9, e3, 9), Snapshot, at(2, 2, e2, 2), never, Applied},
		{"the owner was in an earlier epoch", at(2, 2, e2, 2), Snapshot, at(1, 9, e3, 9), never, Stale},
		{"the owner is back in an earlier epoch", at(2, 2, e2, 9), Snapshot, at(1, 9, e3, 8), soon, Stale},
		{"deleted here, alive there", dead(at(1, 2, lost2, 2)), Snapshot, at(1, 4, e3, 4), never, Diverged},
		{"deleted here, alive there in the next epoch", dead(at(1, 2, lost2, 2)), Snapshot, at(2, 4, e3, 4), never, Applied},
		{"deleted here, put again there", dead(at(1, 2, e2, 2)), Put, at(1, 4, e3, 4), never, Applied},
	} {
		c := Change{Kind: tc.kind, Event: eventing.Event{
			ID: tc.owner.EventID, Epoch: tc.owner.Epoch, Version: tc.owner.Version, OccurredAt: tc.owner.At,
		}}
		if got := Adopt(tc.copy, c, tc.asOf); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
