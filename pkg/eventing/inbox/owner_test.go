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
