package projection_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/pkg/eventing/inbox"
)

// Positions compare by epoch, then version. A tombstone stays in place of anything
// older; within its epoch only a Put comes back from it.
func TestRowsOnlyMoveForward(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	for i, step := range []struct {
		change inbox.Change
		want   inbox.Outcome
	}{
		{change(inbox.Created, newNote("a/1", 1, 1, "one")), inbox.Applied},
		{change(inbox.Updated, newNote("a/1", 1, 2, "two")), inbox.Applied},
		{change(inbox.Updated, newNote("a/1", 1, 2, "again")), inbox.Stale},
		{change(inbox.Updated, newNote("a/1", 2, 3, "of the next epoch")), inbox.Gap},
		{change(inbox.Deleted, newGrave("a/1", 1, 9)), inbox.Applied},
		{change(inbox.Created, newNote("a/1", 1, 1, "late")), inbox.Stale},
		{change(inbox.Snapshot, newNote("a/1", 1, 10, "back")), inbox.Gap},
		{change(inbox.Snapshot, newNote("a/1", 2, 4, "restored")), inbox.Applied},
		{change(inbox.Put, newNote("a/1", 1, 99, "of the epoch before")), inbox.Stale},
		{change(inbox.Deleted, newGrave("a/1", 2, 5)), inbox.Applied},
		{change(inbox.Put, newNote("a/1", 2, 6, "put again")), inbox.Applied},
	} {
		before := s.rows(t)
		if got := s.apply(t, step.change); got[0] != step.want {
			t.Fatalf("step %d: %v, want %v", i, got[0], step.want)
		}
		want := []note{step.change.Payload.(note)}
		if step.want != inbox.Applied {
			want = before
		}
		if diff := cmp.Diff(want, s.rows(t)); diff != "" {
			t.Fatalf("step %d: rows (-want +got):\n%s", i, diff)
		}
	}
}

// A row that appears after the lock is not changed, and Apply decides again on it.
func TestApplyDecidesAgainOnWhatAppeared(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	looks := 0
	s.notes.afterLock = func() {
		looks++
		if looks > 1 {
			return
		}
		_, err := s.admin.Exec(t.Context(), `INSERT INTO app.notes (`+noteColumns+`) VALUES ('theirs', 'a', '1', 1, 1, false, NULL, now())`)
		if err != nil {
			t.Error(err)
		}
	}
	got := s.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "ours")), change(inbox.Updated, newNote("a/1", 1, 2, "two")),
		change(inbox.Created, newNote("b/1", 1, 1, "b")))
	if diff := cmp.Diff([]inbox.Outcome{inbox.Stale, inbox.Applied, inbox.Applied}, got); diff != "" || looks != 2 {
		t.Errorf("%d looks, outcomes (-want +got):\n%s", looks, diff)
	}
	if diff := cmp.Diff([]note{newNote("a/1", 1, 2, "two"), newNote("b/1", 1, 1, "b")}, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
