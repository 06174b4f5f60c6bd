package inbox

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
)

func TestHas(t *testing.T) {
	t.Parallel()
	owner := Position{Epoch: 1, Version: 2, EventID: e2, At: noon(2)}
	for _, tc := range []struct {
		name           string
		epoch, version int64
		id             uuid.UUID
		minute         int
		asOf           time.Time
		want           error
	}{
		{"its last event", 1, 2, e2, 2, time.Time{}, nil},
		{"an earlier one", 1, 1, e1, 1, noon(99), nil},
		{"another one of its version", 1, 2, lost2, 1, time.Time{}, ErrLost},
		{"another one of its version, of a later time", 1, 2, lost2, 3, noon(3).Add(lossTime), ErrBehind},
		{"another one of its version, of a later time, long ago", 1, 2, lost2, 3, noon(3).Add(lossTime + 1), ErrLost},
		{"an earlier one of a later time", 1, 1, lost2, 3, time.Time{}, ErrLost},
		{"an earlier one of a later time, just now", 1, 1, lost2, 3, noon(3).Add(lossTime), ErrBehind},
		{"an earlier one of a later time, long ago", 1, 1, lost2, 3, noon(3).Add(lossTime + 1), ErrLost},
		{"a later one", 1, 3, e3, 3, time.Time{}, ErrBehind},
		{"a later one, just now", 1, 3, e3, 3, noon(3).Add(lossTime), ErrBehind},
		{"a later one, long ago", 1, 3, e3, 3, noon(3).Add(lossTime + 1), ErrLost},
		{"a later version of before its last event", 1, 3, e3, 1, time.Time{}, ErrLost},
		{"one of a later epoch", 2, 1, e3, 1, time.Time{}, ErrBehind},
		{"one of a later epoch, long ago", 2, 1, e3, 1, noon(9), ErrBehind},
		{"one of the epoch before", 0, 9, e3, 9, time.Time{}, nil},
	} {
		e := eventing.Event{ID: tc.id, Epoch: tc.epoch, Version: tc.version, OccurredAt: noon(tc.minute)}
		if got := Has(owner, e, tc.asOf); !errors.Is(got, tc.want) || tc.want == nil && got != nil {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// An owner that does not know a young aggregate may be behind. That is judged by its
// own time, where it says one.
func TestMayLag(t *testing.T) {
	t.Parallel()
	now := time.Now()
	young, old, future := now.Add(-lossTime/2), now.Add(-2*lossTime), now.Add(2*lossTime)
	for _, tc := range []struct {
		name           string
		occurred, asOf time.Time
		want           bool
	}{
		{"young", young, time.Time{}, true},
		{"young, and of just now", young, now, true},
		{"young, and the owner's clock is ahead", young, young.Add(lossTime + 1), false},
		{"old", old, time.Time{}, false},
		{"old, and the answer is of long after it", old, now, false},
		{"old, and so is the answer", old, old.Add(lossTime), true},
		{"old, and the answer is of before it", old, old.Add(-time.Hour), true},
		{"of a clock that is ahead", now.Add(lossTime / 2), now, true},
		{"from the future", future, time.Time{}, false},
		{"from the future, of an owner who knows its time", future, now, false},
		{"of an unknown time", time.Time{}, now, false},
	} {
		if got := MayLag(eventing.Event{OccurredAt: tc.occurred}, tc.asOf); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// A row is replaced at its own version, but only where it was seen.
func TestReplace(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	one, other := uuid.UUID{1}, uuid.UUID{2}
	seen := Position{Epoch: 2, Version: 5, EventID: one, At: at}
	but := func(change func(*Position)) Position {
		p := seen
		change(&p)
		return p
	}
	for name, tc := range map[string]struct {
		row, owner Position
		kind       Kind
		want       Outcome
	}{
		"the same version":               {seen, seen, Snapshot, Applied},
		"the same version, deleted":      {seen, seen, Deleted, Applied},
		"an unknown event":               {seen, but(func(p *Position) { p.EventID = uuid.Nil }), Snapshot, Applied},
		"another time":                   {seen, but(func(p *Position) { p.At = at.Add(-time.Hour) }), Snapshot, Applied},
		"another event":                  {seen, but(func(p *Position) { p.EventID, p.At = other, at.Add(time.Second) }), Snapshot, Diverged},
		"a higher version":               {seen, but(func(p *Position) { p.Version, p.EventID = 6, other }), Snapshot, Applied},
		"a lower version":                {seen, but(func(p *Position) { p.Version, p.EventID = 4, other }), Snapshot, Diverged},
		"a lower epoch":                  {seen, but(func(p *Position) { p.Epoch, p.Version = 1, 9 }), Snapshot, Stale},
		"the row has moved":              {but(func(p *Position) { p.Version = 6 }), seen, Snapshot, Stale},
		"the row is of another event":    {but(func(p *Position) { p.EventID = other }), seen, Snapshot, Stale},
		"the row is deleted since":       {but(func(p *Position) { p.Deleted = true }), seen, Snapshot, Stale},
		"the row is there since":         {Position{Epoch: 1, Version: 1}, seen, Snapshot, Stale},
		"the row is gone since":          {Position{}, seen, Snapshot, Stale},
		"the row is in a new epoch":      {but(func(p *Position) { p.Epoch = 3 }), seen, Snapshot, Stale},
		"the row is of another instant":  {but(func(p *Position) { p.At = at.Add(time.Microsecond) }), seen, Snapshot, Stale},
		"the same instant, another zone": {but(func(p *Position) { p.At = at.In(time.FixedZone("", 3600)) }), seen, Snapshot, Applied},
	} {
		c := Change{Kind: tc.kind, Event: eventing.Event{ID: tc.owner.EventID, Epoch: tc.owner.Epoch, Version: tc.owner.Version, OccurredAt: tc.owner.At}}
		if got := Replace(seen, tc.row, c, at.Add(time.Hour)); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	c := Change{Kind: Snapshot, Event: eventing.Event{ID: one, Epoch: 2, Version: 5, OccurredAt: at}}
	if got := Replace(Position{}, Position{}, c, at.Add(time.Hour)); got != Applied {
		t.Errorf("a missing row: %v", got)
	}
}

// An answer that may be a former primary's replaces a row only by the row's own event. No
// answer is from before a row from the future.
func TestReplaceByAFormerPrimary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	one, ago := uuid.UUID{1}, now.Add(-time.Hour)
	row := func(version int64, id uuid.UUID, at time.Time) Position {
		return Position{Epoch: 2, Version: version, EventID: id, At: at}
	}
	young, future := now.Add(-5*time.Second), now.Add(24*time.Hour)
	for name, tc := range map[string]struct {
		row, owner Position
		asOf       time.Time
		want       Outcome
	}{
		"the same event":                           {row(7, one, young), row(7, one, ago), now, Applied},
		"the owner's event is unknown":             {row(7, one, young), row(7, unknown, ago), now, Stale},
		"the row's event is unknown":               {row(7, unknown, young), row(7, one, ago), now, Stale},
		"neither event is known":                   {row(7, unknown, young), row(7, unknown, ago), now, Stale},
		"unknown, and the answer is of after it":   {row(7, one, young), row(7, unknown, ago), now.Add(time.Minute), Applied},
		"unknown, of the same time":                {row(7, one, young), row(7, unknown, young), now, Applied},
		"from the future":                          {row(7, one, future), row(7, unknown, ago), now, Applied},
		"a version ahead, from the future":         {row(8, unknown, future), row(7, one, ago), now, Diverged},
		"a version ahead, of just now":             {row(8, unknown, young), row(7, one, ago), now, Stale},
		"a version behind, from the future":        {row(6, one, future), row(7, unknown, ago), now, Applied},
		"a later epoch than the owner's, of a day": {Position{Epoch: 3, Version: 7, At: future}, row(7, one, ago), now, Stale},
	} {
		c := Change{Kind: Put, Event: eventing.Event{ID: tc.owner.EventID, Epoch: tc.owner.Epoch, Version: tc.owner.Version, OccurredAt: tc.owner.At}}
		if got := Replace(tc.row, tc.row, c, tc.asOf); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
