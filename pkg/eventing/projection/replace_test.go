package projection_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// seen is the position of n, as a comparison has found it.
func (n note) seen() reconcile.Row {
	return reconcile.Row{ID: n.id(), Version: n.Version, Epoch: n.Epoch, EventID: n.EventID.UUID, At: n.At, Deleted: n.Deleted}
}

// all is a reconcile.Standing. No row has changed.
func all(_ context.Context, _ pgx.Tx, seen []reconcile.Row) ([]reconcile.Row, error) {
	return seen, nil
}

// A row that has changed at its position, such as by another repair, stays. The rows are locked when they are read again, so that
// they cannot change afterwards.
func TestReplaceLeavesRowsThatHaveChanged(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	wrong, repaired := newNote("a/1", 1, 2, "wrong").by(1, 0), newNote("a/2", 1, 2, "repaired").by(2, 0)
	s.apply(t, change(inbox.Put, wrong), change(inbox.Put, repaired))
	right := newNote("a/1", 1, 2, "right").by(1, 0)
	s.has(right, newNote("a/2", 1, 2, "of the owner").by(2, 0))
	s.asOf = time.Now()
	written, err := s.Replace(t.Context(), audit.Actor{By: "ada"}, []reconcile.Row{wrong.seen(), repaired.seen()},
		func(ctx context.Context, tx pgx.Tx, seen []reconcile.Row) ([]reconcile.Row, error) {
			var free int
			err := s.admin.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM app.notes FOR UPDATE SKIP LOCKED) AS free`).Scan(&free)
			if free > 0 || len(seen) != 2 || tx == nil {
				t.Errorf("%d of %d rows are not locked", free, len(seen))
			}
			return seen[:1], err
		})
	if err != nil || !slices.Equal(written, []string{"a/1"}) {
		t.Errorf("%v are replaced, %v", written, err)
	}
	if diff := cmp.Diff([]note{right, repaired}, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Each row that differs gets the owner's state, and the audit table has the row of before. A row that the
// owner does not know becomes a tombstone, unless the answer may be from before the row.
func TestReplace(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	now := time.Now().UTC().Truncate(time.Second)
	hourAgo := now.Add(-time.Hour)
	s.asOf = now
	made := func(id string, version int64, body string, event byte, at time.Time) note {
		n := newNote(id, 1, version, body).by(event, 0)
		n.At = at
		return n
	}
	wrong, right := made("a/1", 2, "wrong", 1, hourAgo), made("a/1", 2, "right", 1, hourAgo)
	lost, young := made("a/2", 2, "lost", 2, hourAgo), made("a/3", 2, "young", 3, now)
	same := made("a/4", 2, "same", 4, hourAgo)
	missing := made("a/6", 1, "missing", 6, hourAgo)
	odd, refused := made("a/7", 1, "odd", 7, hourAgo), made("a/7", 2, "zero \x00", 8, hourAgo)
	for _, n := range []note{wrong, lost, young, same, odd} {
		s.apply(t, change(inbox.Put, n))
	}
	s.has(right, same, missing, refused)
	before := same // an event has moved it since
	before.Version, before.EventID.UUID = 1, [16]byte{9}
	written, err := s.Replace(t.Context(), audit.Actor{By: "ada"}, []reconcile.Row{
		wrong.seen(), lost.seen(), young.seen(), before.seen(), {ID: "a/5"}, {ID: missing.id()}, odd.seen(),
	}, all)
	if want := []string{"a/1", "a/2", "a/6"}; err != nil || !slices.Equal(slices.Sorted(slices.Values(written)), want) {
		t.Errorf("%v are replaced, %v; want %v", written, err, want)
	}
	grave := lost
	grave.Deleted, grave.At = true, now
	if diff := cmp.Diff([]note{right, grave, young, same, missing, odd}, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	rows, _ := s.admin.Query(t.Context(), `SELECT concat_ws(' ', aggregate_id, record->'row'->>'Body') FROM app.operator_actions
		WHERE action = 'reconcile' AND actor = 'ada' ORDER BY 1`)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if diff := cmp.Diff([]string{"a/1 wrong", "a/2 lost", "a/6"}, got); err != nil || diff != "" {
		t.Errorf("audit, %v (-want +got):\n%s", err, diff)
	}
	if strings.Count(s.said.String(), "cannot be repaired") != 1 || !strings.Contains(s.said.String(), "aggregate_id=a/7") {
		t.Error(s.said.String())
	}
}

// The answers of one transaction are of several times. A row that is ahead of an answer from before it is not
// taken back, although another answer is from after it.
func TestReplaceByAnswersOfSeveralTimes(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	now := time.Now().UTC().Truncate(time.Second)
	made := func(id string, version int64, event byte, ago time.Duration) note {
		n := newNote(id, 1, version, "body").by(event, 0)
		n.At = now.Add(-ago)
		return n
	}
	owned, ahead := made("a/1", 2, 2, 20*time.Minute), made("a/1", 3, 3, 5*time.Minute)
	other := made("a/2", 1, 4, time.Hour)
	s.apply(t, change(inbox.Put, ahead), change(inbox.Put, other))
	s.has(owned, other)
	times := []time.Time{now.Add(-10 * time.Minute), now}
	s.notes.beforeFetch = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asOf, times = times[0], times[1:]
	}
	if _, err := s.Replace(t.Context(), audit.Actor{By: "ada"}, []reconcile.Row{ahead.seen(), other.seen()}, all); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]note{ahead, other}, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
