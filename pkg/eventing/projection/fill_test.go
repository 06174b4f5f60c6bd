package projection_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
)

// fillAll fills all pages, and returns the sums.
func (s *shelf) fillAll(t *testing.T) (pages int, sum projection.Filled) {
	t.Helper()
	for !sum.Done {
		f, err := s.Fill(t.Context(), sum.Next)
		if err != nil {
			t.Fatal(err)
		}
		if !f.AsOf.Equal(s.asOf) || f.Estimate != int64(len(s.owner)) {
			t.Errorf("as of %v, about %d rows", f.AsOf, f.Estimate)
		}
		pages++
		f.Rows, f.Written, f.Failed = f.Rows+sum.Rows, f.Written+sum.Written, f.Failed+sum.Failed
		sum = f
	}
	return pages, sum
}

// All rows and tombstones of the owner are there afterwards, over several pages and
// transactions. A row that events have brought further stays, and
// so does one that the owner does not have. Once more changes nothing.
func TestFill(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	var want []note
	for i := range 2*pageNotes + 3 {
		n := newNote(fmt.Sprintf("a/%03d", i), 1, 3, "owned").by(byte(i+1), 10)
		if i%5 == 0 {
			n = newGrave(n.id(), 1, 3).by(byte(i+1), 10)
		}
		s.has(n)
		want = append(want, n)
	}
	further := newNote("a/041", 1, 4, "by an event").by(200, 30)
	behind := newNote("a/042", 1, 2, "old").by(201, 5)
	extra := newNote("b/0", 1, 1, "without an owner").by(202, 5)
	s.apply(t, change(inbox.Put, further), change(inbox.Put, behind), change(inbox.Put, extra))
	want[41] = further
	pages, sum := s.fillAll(t)
	if pages != 3 || sum.Rows != len(want) || sum.Written != len(want)-1 {
		t.Errorf("%d pages, %d rows, %d written", pages, sum.Rows, sum.Written)
	}
	if diff := cmp.Diff(append(slices.Clone(want), extra), s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if _, again := s.fillAll(t); again.Written != 0 {
		t.Errorf("once more wrote %d rows", again.Written)
	}
}

// A page that was read before events were applied takes nothing back, whatever they were.
func TestFillIsOvertaken(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(10) // an answer of before the events
	s.has(newNote("a/1", 1, 1, "one").by(1, 1), newNote("a/2", 1, 1, "two").by(2, 1), newNote("a/3", 1, 5, "three").by(3, 9),
		newNote("a/4", 1, 5, "of a former primary").by(7, 9))
	events := []note{newGrave("a/1", 1, 2).by(4, 11), newNote("a/2", 2, 2, "of a new epoch").by(5, 11), newNote("a/3", 1, 6, "newer").by(6, 11),
		newNote("a/4", 1, 5, "after a failover").by(8, 11)}
	s.apply(t, change(inbox.Put, events[2]), change(inbox.Put, events[3]))
	s.notes.beforeFetch = func() {
		s.notes.beforeFetch = nil
		s.apply(t, change(inbox.Deleted, events[0]), change(inbox.Put, events[1]))
	}
	if _, sum := s.fillAll(t); sum.Written != 0 {
		t.Errorf("%d rows written", sum.Written)
	}
	if diff := cmp.Diff(events, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A row of a history that the owner has lost is replaced, and reported, if the owner has changed
// it since. One that is ahead of the owner's stays otherwise, however young the answer is: the
// owner may be yesterday's copy, or the wrong one, and a page has all its rows.
func TestFillReportsADivergence(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(59)
	ahead := newNote("a/1", 1, 7, "newer").by(1, 5)
	s.apply(t, change(inbox.Put, ahead), change(inbox.Put, newNote("a/2", 1, 4, "lost").by(2, 5)),
		change(inbox.Put, newNote("a/3", 1, 7, "lost").by(5, 5)))
	owned, goneOn := newNote("a/2", 1, 4, "of the owner").by(3, 6), newNote("a/3", 1, 4, "gone on").by(6, 6)
	s.has(newNote("a/1", 1, 4, "of yesterday").by(4, 4), owned, goneOn)
	s.fillAll(t)
	if diff := cmp.Diff([]note{ahead, owned, goneOn}, s.rows(t)); diff != "" || strings.Count(s.said.String(), "its owner has lost") != 2 {
		t.Errorf("said %q, rows (-want +got):\n%s", s.said.String(), diff)
	}
}

// A fill that meets a locked row gives up, with its transactions before. It does not get into
// the way of the transaction that has the row, and continues later.
func TestFillGivesWay(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	for i := range pageNotes {
		s.has(newNote(fmt.Sprintf("a/%03d", i), 1, 2, "owned"))
	}
	last := newNote(fmt.Sprintf("a/%03d", pageNotes-1), 1, 1, "old")
	s.apply(t, change(inbox.Put, last))
	tx := pgtest.Begin(t, s.admin)
	defer func() { _ = tx.Rollback(t.Context()) }()
	pgtest.Exec(t, tx, `UPDATE app.notes SET body = body`)
	if f, err := s.Fill(t.Context(), ""); !errors.Is(err, txn.ErrLocked) || f != (projection.Filled{}) {
		t.Errorf("%+v, %v", f, err)
	}
	if n := len(s.rows(t)); n != 33 {
		t.Errorf("%d rows, want those of the first transaction and the locked one", n)
	}
	pgtest.End(t, tx.Rollback)
	if f, err := s.Fill(t.Context(), ""); err != nil || !f.Done || f.Rows != pageNotes || f.Written != pageNotes-32 {
		t.Errorf("%+v, %v", f, err)
	}
}

// An owner that cannot be asked, one whose pages lead back, and one that does not say the
// time of its answer end a fill.
func TestFillWithoutAnOwner(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	s.has(newNote("a/1", 1, 1, "one"))
	s.away = consistency.ErrOwnerUnavailable
	if f, err := s.Fill(t.Context(), ""); !errors.Is(err, consistency.ErrOwnerUnavailable) || f != (projection.Filled{}) {
		t.Errorf("%+v, %v", f, err)
	}
	s.away = nil
	s.notes.next = "a/0"
	if _, err := s.Fill(t.Context(), "a/1"); !errors.Is(err, consistency.ErrOwnerUnavailable) || len(s.rows(t)) > 0 {
		t.Errorf("a page that leads back: %v, %v", err, s.rows(t))
	}
	s.asOf, s.notes.next = time.Time{}, ""
	if _, err := s.Fill(t.Context(), ""); !errors.Is(err, consistency.ErrOwnerUnavailable) || len(s.rows(t)) > 0 {
		t.Errorf("a page of an unknown time: %v, %v", err, s.rows(t))
	}
}

// A row of the owner that the table refuses, and one of the reader that cannot be read, are
// left, with their ids in the log. The others of their page are written.
func TestFillLeavesOddRows(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	var want []string
	for i := range 2*pageNotes + 3 {
		n := newNote(fmt.Sprintf("a/%03d", i), 1, 2, "owned").by(byte(i+1), 10)
		if i == 1 {
			n.Body = nil
		} else if i != 50 {
			want = append(want, n.id())
		}
		s.has(n)
	}
	pgtest.Exec(t, s.admin, `INSERT INTO app.notes (`+noteColumns+`) VALUES ('odd', 'a', '050', 1, 1, false, NULL, 'infinity')`)
	pages, sum := s.fillAll(t)
	if pages != 3 || sum.Rows != len(want)+2 || sum.Written != len(want) || sum.Failed != 2 {
		t.Errorf("%d pages, %+v", pages, sum)
	}
	pgtest.Exec(t, s.admin, `DELETE FROM app.notes WHERE name = '050'`)
	var got []string
	for _, n := range s.rows(t) {
		got = append(got, n.id())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, id := range []string{"a/001", "a/050"} {
		if strings.Count(s.said.String(), "aggregate_id="+id) != 1 {
			t.Errorf("%s: %s", id, s.said.String())
		}
	}
}

// Rows that the table refuses, however many there are, hold up none of their page.
func TestFillOfATableThatRefusesMany(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	for i := range pageNotes - 1 {
		s.has(newNote(fmt.Sprintf("a/%03d", i), 1, 2, "odd"))
	}
	s.has(newNote("a/999", 1, 2, "owned"))
	pgtest.Exec(t, s.admin, `ALTER TABLE app.notes ADD CHECK (body <> 'odd')`)
	if f, err := s.Fill(t.Context(), ""); err != nil || f.Failed != pageNotes-1 || f.Written != 1 || !f.Done {
		t.Errorf("%+v, %v", f, err)
	}
	if n := strings.Count(s.said.String(), "cannot be written"); n != pageNotes-1 {
		t.Errorf("%d rows in the log", n)
	}
}
