package replica_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/pkg/eventing/inbox"
)

// A batch is one read and one statement, however many rows it inserts and moves, and in
// any order of the columns.
func TestABatchIsOneWrite(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "old")), change(inbox.Put, newNote("b/1", 1, 1, "old")))
	looks, writes := s.watch.about("FOR UPDATE"), s.watch.about("INSERT INTO notes")
	got := s.apply(t,
		change(inbox.Created, newNote("a/0", 1, 1, "born")), change(inbox.Updated, newNote("a/0", 1, 2, "grown")),
		change(inbox.Put, newNote("a/1", 1, 1, "again")), change(inbox.Updated, newNote("a/1", 1, 3, "gap")),
		change(inbox.Put, newNote("b/1", 1, 7, "moved")), change(inbox.Updated, newNote("c/1", 1, 2, "gap")))
	want := []inbox.Outcome{inbox.Applied, inbox.Applied, inbox.Stale, inbox.Gap, inbox.Applied, inbox.Gap}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	rows := []note{newNote("a/0", 1, 2, "grown"), newNote("a/1", 1, 1, "old"), newNote("b/1", 1, 7, "moved")}
	if diff := cmp.Diff(rows, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	looks, writes = s.watch.about("FOR UPDATE")-looks, s.watch.about("INSERT INTO notes")-writes
	if looks != 1 || writes != 1 {
		t.Errorf("%d looks and %d writes of a batch", looks, writes)
	}
	var stamped int
	err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM notes WHERE applied_at > '2000-01-01'`).Scan(&stamped)
	if err != nil || stamped != 1 {
		t.Errorf("%d rows say when they were moved, want that one; %v", stamped, err)
	}
}

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

// Absent rows cannot be locked: a write waits for other transactions that are inserting
// them, in the order of the key, and does not change the rows that those have inserted.
func TestWhatAppearedMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	theirs, err := s.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Rollback(t.Context())
	insert := func(id string) error {
		n := newNote(id, 1, 5, "theirs")
		_, err := theirs.Exec(t.Context(), `INSERT INTO catalog.notes (`+noteColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			n.Body, n.Owner, n.Name, n.Epoch, n.Version, n.Deleted, n.EventID, n.At)
		return err
	}
	if err := insert("a/2"); err != nil {
		t.Fatal(err)
	}
	steps := []inbox.Step[note]{}
	for _, id := range []string{"b/1", "a/9", "a/2"} { // the last of these is the first by key
		steps = append(steps, inbox.Step[note]{ID: id, New: newNote(id, 1, 1, "ours")})
	}
	type result struct {
		written []string
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		var r result
		r.err = pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) (err error) {
			r.written, err = noteWriter.Write(t.Context(), tx, steps)
			return err
		})
		ended <- r
	}()
	s.untilSomebodyWaits(t)
	// If our write had begun with any other row, this would be a deadlock.
	if err := errors.Join(insert("a/9"), insert("b/1"), theirs.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	if r := <-ended; r.err != nil || len(r.written) != 0 {
		t.Errorf("written %v, %v; want nothing", r.written, r.err)
	}
	want := []note{newNote("a/2", 1, 5, "theirs"), newNote("a/9", 1, 5, "theirs"), newNote("b/1", 1, 5, "theirs")}
	if diff := cmp.Diff(want, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Apply then decides again, on the row that has appeared.
func TestApplyDecidesAgainOnWhatAppeared(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	look, looks := s.Rows.Lock, 0
	s.Rows.Lock = func(ctx context.Context, tx pgx.Tx, ids []string) (map[string]note, error) {
		found, err := look(ctx, tx, ids)
		looks++
		if looks == 1 {
			_, err = s.admin.Exec(ctx, `INSERT INTO catalog.notes (`+noteColumns+`) VALUES ('theirs', 'a', '1', 1, 1, false, NULL, now())`)
		}
		return found, err
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

// A write returns the rows that it has written, by their ids in events.
func TestWriteSaysWhatItHasWritten(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.apply(t, change(inbox.Put, newNote("a/1", 1, 1, "moves")), change(inbox.Put, newNote("a/2", 1, 1, "is there")))
	var written []string
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) (err error) {
		written, err = noteWriter.Write(t.Context(), tx, []inbox.Step[note]{
			{ID: "a/3", New: newNote("a/3", 1, 1, "new")},
			{ID: "a/2", New: newNote("a/2", 1, 1, "thought to be absent")},
			{ID: "a/1", Old: newNote("a/1", 1, 1, "moves"), New: newNote("a/1", 1, 2, "moved")},
		})
		return err
	})
	slices.Sort(written)
	if err != nil || !slices.Equal(written, []string{"a/1", "a/3"}) {
		t.Errorf("written %v, %v", written, err)
	}
	want := []note{newNote("a/1", 1, 2, "moved"), newNote("a/2", 1, 1, "is there"), newNote("a/3", 1, 1, "new")}
	if diff := cmp.Diff(want, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// The database's error is kept, so that the consumer can tell whether the event is at
// fault; it names the column. Nothing of the batch remains.
func TestARefusedRowIsNamed(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	bad := newNote("b/1", 1, 1, "")
	bad.Body = nil
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
		_, err := s.Rows.Apply(t.Context(), tx, []inbox.Change{change(inbox.Put, newNote("a/1", 1, 1, "good")), change(inbox.Put, bad)})
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ColumnName != "body" || pg.Code != "23502" {
		t.Errorf("error %v; want one that names the column body", err)
	}
	if rows := s.rows(t); len(rows) != 0 {
		t.Errorf("%d rows of a batch that was refused", len(rows))
	}
	if _, err := s.admin.Exec(t.Context(), `REVOKE SELECT ON catalog.notes FROM catalog_service`); err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
		found, err := lockNotes(t.Context(), tx, []string{"a/1"})
		if found != nil {
			t.Errorf("rows %v of a table that cannot be read", found)
		}
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
		t.Errorf("error %v; want that the table cannot be read", err)
	}
}
