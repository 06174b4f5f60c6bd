package projection_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
)

// old is the notes of a build that has left all notes of version 1 incomplete. A pass ends with
// the count.
type old struct {
	*notes

	t      *testing.T
	counts chan<- int64
}

func (o old) Incomplete(_ context.Context, after string, limit int) (ids []string, err error) {
	for _, n := range o.rows(o.t) {
		if n.Version == 1 && n.id() > after && len(ids) < limit {
			ids = append(ids, n.id())
		}
	}
	return ids, nil
}

func (o old) CountIncomplete(context.Context, int) (n int64, err error) {
	for _, row := range o.rows(o.t) {
		if row.Version == 1 {
			n++
		}
	}
	o.counts <- n
	return n, nil
}

// Incomplete rows whose owner's state the table refuses hold up no other ones, although they are
// more than one pass tries.
func TestOddRowsHoldUpNoCompletion(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf = minuteOf(30)
	pgtest.Exec(t, s.admin, `ALTER TABLE app.notes ADD CHECK (body <> 'odd')`)
	const rows, oddRows = 150, 130
	for i := range rows {
		id := fmt.Sprintf("a/%03d", i)
		s.apply(t, change(inbox.Put, newNote(id, 1, 1, "incomplete")))
		body := "odd"
		if i >= oddRows {
			body = "whole"
		}
		s.has(newNote(id, 1, 2, body))
	}
	synctest.Test(t, func(t *testing.T) { // the pause between two passes is a minute
		db, err := pgxpool.New(t.Context(), s.db.Config().ConnString())
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		s.db = db
		ctx, stop := context.WithCancel(t.Context())
		counts, ended := make(chan int64, 10), make(chan error, 1)
		p := projection.New(txn.NewWriter(db), old{s.notes, t, counts}, s.waiters, slog.New(slog.NewTextHandler(&s.said, nil)))
		go func() { ended <- p.Complete(ctx, func() {}) }()
		passes := []int64{<-counts, <-counts}
		// The next pass begins at the first row again.
		if _, err := s.admin.Exec(t.Context(), `ALTER TABLE app.notes DROP CONSTRAINT notes_body_check`); err != nil {
			t.Error(err)
		}
		passes = append(passes, <-counts)
		stop()
		if err := <-ended; err != nil || !slices.Equal(passes, []int64{rows, oddRows, 0}) {
			t.Errorf("%v, after the passes %v rows are incomplete", err, passes)
		}
	})
	if n := strings.Count(s.said.String(), "cannot be written"); n != 100 {
		t.Errorf("%d lines of %d rows, want 100", n, oddRows)
	}
}

// Incomplete rows that the owner does not know hold up no others, also if it answers a call for
// nothing but such rows with an error.
func TestUnknownRowsHoldUpNoCompletion(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.asOf, s.curt = minuteOf(30), true
	const unknown = consistency.MaxPositions
	for i := range unknown + 1 {
		s.apply(t, change(inbox.Put, newNote(fmt.Sprintf("a/%03d", i), 1, 1, "incomplete")))
	}
	s.has(newNote(fmt.Sprintf("a/%03d", unknown), 1, 2, "whole"))
	ctx, stop := context.WithCancel(t.Context())
	counts, ended := make(chan int64, 10), make(chan error, 1)
	p := projection.New(txn.NewWriter(s.db), old{s.notes, t, counts}, s.waiters, slog.New(slog.NewTextHandler(&s.said, nil)))
	go func() { ended <- p.Complete(ctx, func() {}) }()
	select {
	case n := <-counts:
		if n != unknown {
			t.Errorf("%d rows are incomplete after a pass, want %d", n, unknown)
		}
	case <-time.After(time.Minute):
		t.Error("no pass has ended")
	}
	stop()
	if err := <-ended; err != nil || strings.Contains(s.said.String(), "level=WARN") {
		t.Errorf("%v; %s", err, s.said.String())
	}
}
