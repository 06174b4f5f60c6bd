package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/inbox"
)

// These tests hold the Lock and the Upsert of both tables to the contract of inbox.Rows.

// A batch is one read and one statement, however many rows it inserts and moves.
func TestABatchIsOneWrite(t *testing.T) {
	t.Parallel()
	t.Run("videos", func(t *testing.T) { t.Parallel(); aBatchIsOneWrite(t, videoStore.open(t), videos{}.Snapshot) })
	t.Run("engagements", func(t *testing.T) { t.Parallel(); aBatchIsOneWrite(t, engagementStore.open(t), engagements{}.Snapshot) })
}

func aBatchIsOneWrite[S any](t *testing.T, s store[S], snapshot func(S) inbox.Change) {
	t.Helper()
	if _, err := s.upsert(t.Context(), s.fresh(1, 1), s.fresh(2, 1)); err != nil {
		t.Fatal(err)
	}
	s.sent.take()
	var changes []inbox.Change
	for _, row := range []S{s.row(0, 1, 7), s.row(0, 2, 8), s.row(1, 1, 9), s.row(2, 5, 10), s.row(3, 4, 11)} {
		changes = append(changes, snapshot(row))
	}
	var outcomes []inbox.Outcome
	err := pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) (err error) {
		outcomes, err = inbox.ApplyChanges(t.Context(), tx, s.Rows, changes)
		return err
	})
	want := []inbox.Outcome{inbox.Applied, inbox.Applied, inbox.Stale, inbox.Applied, inbox.Applied}
	if diff := cmp.Diff(want, outcomes); err != nil || diff != "" {
		t.Errorf("%v; outcomes (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff([]string{"2 8", "1 1", "5 10", "4 11"}, s.marks(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if n := s.sent.take("FOR UPDATE", "INSERT INTO "+s.table); !slices.Equal(n, []int{1, 1}) {
		t.Errorf("%v reads and writes of a batch", n)
	}
}

// A write returns the rows that it has written, by their ids in events. An absent row that
// has appeared since the lock stays as it is.
func TestWriteSaysWhatItHasWritten(t *testing.T) {
	t.Parallel()
	t.Run("videos", func(t *testing.T) { t.Parallel(); writeSaysWhatItHasWritten(t, videoStore.open(t)) })
	t.Run("engagements", func(t *testing.T) { t.Parallel(); writeSaysWhatItHasWritten(t, engagementStore.open(t)) })
}

func writeSaysWhatItHasWritten[S any](t *testing.T, s store[S]) {
	t.Helper()
	moves, is, absent := s.step(1, 2, 21), s.fresh(2, 22), s.fresh(3, 23)
	if _, err := s.upsert(t.Context(), s.fresh(1, 1), s.fresh(2, 2)); err != nil {
		t.Fatal(err)
	}
	written, err := s.upsert(t.Context(), absent, is, moves)
	if err != nil || !slices.Equal(written, []string{moves.ID, absent.ID}) {
		t.Errorf("written %v, %v; want %s and %s", written, err, moves.ID, absent.ID)
	}
	if diff := cmp.Diff([]string{"2 21", "1 2", "1 23"}, s.marks(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Absent rows cannot be locked: a write waits for other transactions that are inserting
// them, in the order of the key, and does not change the rows that those have inserted.
func TestConcurrentlyInsertedRowIsLeftAlone(t *testing.T) {
	t.Parallel()
	t.Run("videos", func(t *testing.T) { t.Parallel(); whatAppearedMeanwhile(t, videoStore.open(t)) })
	t.Run("engagements", func(t *testing.T) { t.Parallel(); whatAppearedMeanwhile(t, engagementStore.open(t)) })
}

func whatAppearedMeanwhile[S any](t *testing.T, s store[S]) {
	t.Helper()
	theirs := pgtest.Begin(t, s.pool)
	defer theirs.Rollback(context.WithoutCancel(t.Context()))
	insert := func(n int) error {
		_, err := s.Upsert(t.Context(), theirs, []inbox.Step[S]{s.fresh(n, 50)})
		return err
	}
	if err := insert(2); err != nil {
		t.Fatal(err)
	}
	type result struct {
		written []string
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		written, err := s.upsert(t.Context(), s.fresh(9, 60), s.fresh(5, 60), s.fresh(2, 60)) // the last of these is the first by key
		ended <- result{written, err}
	}()
	eventually(t, func() bool {
		var n int
		err := s.admin.QueryRow(t.Context(), `
			SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n)
		return err == nil && n > 0
	})
	// If our write had begun with any other row, this would be a deadlock.
	if err := errors.Join(insert(5), insert(9), theirs.Commit(t.Context())); err != nil {
		t.Error(err)
	}
	if r := <-ended; r.err != nil || len(r.written) != 0 {
		t.Errorf("written %v, %v; want nothing", r.written, r.err)
	}
	if diff := cmp.Diff([]string{"1 50", "1 50", "1 50"}, s.marks(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// The database's error is kept, so that the consumer can tell whether the event is at
// fault; it names the constraint. Nothing of the batch remains.
func TestARefusedRowIsNamed(t *testing.T) {
	t.Parallel()
	t.Run("videos", func(t *testing.T) { t.Parallel(); aRefusedRowIsNamed(t, videoStore.open(t)) })
	t.Run("engagements", func(t *testing.T) { t.Parallel(); aRefusedRowIsNamed(t, engagementStore.open(t)) })
}

func aRefusedRowIsNamed[S any](t *testing.T, s store[S]) {
	t.Helper()
	bad := s.fresh(2, 1)
	bad.New = s.row(2, 0, 1)
	_, err := s.upsert(t.Context(), s.fresh(1, 1), bad)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.ConstraintName != s.table+"_version_check" {
		t.Errorf("error %v; want one that names the constraint", err)
	}
	if rows := s.marks(t); len(rows) != 0 {
		t.Errorf("%d rows of a batch that was refused", len(rows))
	}
	pgtest.Exec(t, s.admin, fmt.Sprintf(`REVOKE SELECT ON catalog.%s FROM catalog_service, catalog_api`, s.table))
	err = pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
		found, err := s.Lock(t.Context(), tx, []string{bad.ID})
		if found != nil {
			t.Errorf("rows %v of a table that cannot be read", found)
		}
		return err
	})
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
		t.Errorf("error %v; want that the table cannot be read", err)
	}
}
