package inbox

import (
	"testing"

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
		{"no kind at all", Position{}, 0, 1, 1, Gap},
	} {
		c := Change{Kind: tc.kind, Event: eventing.Event{Epoch: tc.epoch, Version: tc.version}}
		if got := Decide(tc.at, c); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
