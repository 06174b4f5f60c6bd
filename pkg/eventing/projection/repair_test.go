package projection_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/txn"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	event := func(epoch, version int64) eventing.Event {
		return change(inbox.Updated, newNote("a/1", epoch, version, "")).Event
	}
	mine := newNote("a/1", 2, 3, "mine")
	old := change(inbox.Updated, newNote("a/1", 2, 4, "").by(4, -1_000_000)).Event
	for name, tc := range map[string]struct {
		copy, owner *note
		away        error
		asOf        time.Time
		event       eventing.Event
		young       bool // the event has just occurred
		want        note // the copy's row in the end
		err         error
		says        []string
		permanent   bool
		reported    bool // as a divergence
	}{
		"nothing yet":                 {owner: new(mine), event: event(2, 3), want: mine},
		"behind":                      {copy: new(newNote("a/1", 2, 1, "old")), owner: new(mine), event: event(2, 3), want: mine},
		"the owner is further":        {owner: new(mine), event: event(2, 2), want: mine},
		"the owner was restored":      {copy: new(newNote("a/1", 1, 9, "lost")), owner: new(mine), event: event(1, 10), want: mine},
		"the owner has deleted it":    {copy: new(mine), owner: new(newGrave("a/1", 2, 4)), event: event(2, 4), want: newGrave("a/1", 2, 4)},
		"deleted in the epoch before": {copy: new(newGrave("a/1", 1, 9)), owner: new(mine), event: event(2, 3), want: mine},
		"the copy is further": {
			copy: new(newNote("a/1", 2, 7, "seven")), owner: new(mine), event: event(2, 3), want: newNote("a/1", 2, 7, "seven"),
		},
		"the owner is behind its event": {
			owner: new(mine), event: event(2, 5), want: mine, err: inbox.ErrBehind, says: []string{"version 3 of note/a/1", "its event has 5"},
		},
		"by an epoch": {owner: new(mine), event: event(3, 1), want: mine, err: inbox.ErrBehind, says: []string{"version 3 of note/a/1"}},
		"unknown":     {copy: new(mine), event: event(2, 4), want: mine, err: projection.ErrUnknown, permanent: true},
		"unknown, a young event": {
			copy: new(mine), event: event(2, 4), young: true, want: mine,
			err: inbox.ErrBehind, says: []string{projection.ErrUnknown.Error()},
		},
		"unknown, to a standby that is behind": {
			copy: new(mine), asOf: minuteOf(-1_000_001), event: old, want: mine, err: inbox.ErrBehind,
		},
		"unknown, to an owner who must know": {
			copy: new(mine), asOf: minuteOf(-999_999), event: old, want: mine, err: projection.ErrUnknown, permanent: true,
		},
		"away":               {copy: new(mine), away: consistency.ErrOwnerUnavailable, event: event(2, 4), want: mine, err: consistency.ErrOwnerUnavailable},
		"back from the dead": {copy: new(newGrave("a/1", 2, 2)), owner: new(mine), event: event(2, 3), want: mine, reported: true},
		"another history": {
			copy: new(newNote("a/1", 2, 3, "lost").by(0xf3, 3)), owner: new(mine.by(3, 5)), event: change(inbox.Updated, mine.by(3, 5)).Event,
			want: mine.by(3, 5), reported: true,
		},
		"another history that went further": {
			copy: new(newNote("a/1", 2, 9, "lost").by(0xf9, 4)), owner: new(mine.by(3, 5)), event: change(inbox.Updated, mine.by(3, 5)).Event,
			want: mine.by(3, 5), reported: true,
		},
		"another history that was deleted": {
			copy: new(newGrave("a/1", 2, 9).by(0xf9, 4)), owner: new(mine.by(3, 5)), event: change(inbox.Updated, mine.by(3, 5)).Event,
			want: mine.by(3, 5), reported: true,
		},
		"the event is of another history": {
			copy: new(mine.by(3, 5)), owner: new(mine.by(3, 5)), event: change(inbox.Updated, newNote("a/1", 2, 3, "").by(0xf3, 3)).Event,
			want: mine.by(3, 5), err: inbox.ErrLost,
		},
		"the owner went on without the event": {
			owner: new(mine.by(3, 5)), event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(0xf7, 4)).Event,
			want: mine.by(3, 5), err: inbox.ErrLost,
		},
		"the owner's answer is of before the event": {
			owner: new(mine.by(3, 3)), asOf: minuteOf(3), event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(0xf7, 4)).Event,
			want: mine.by(3, 3), err: inbox.ErrBehind,
		},
		"the owner's answer is of long after the event": {
			owner: new(mine.by(3, 3)), asOf: minuteOf(30), event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(0xf7, 4)).Event,
			want: mine.by(3, 3), err: inbox.ErrLost,
		},
		"the owner's answer is of long after event and copy": {
			copy: new(newNote("a/1", 2, 5, "lost").by(0xf5, 4)), owner: new(mine.by(3, 3)), asOf: minuteOf(30),
			event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(0xf7, 4)).Event,
			want:  mine.by(3, 3), err: inbox.ErrLost, reported: true,
		},
		"a former primary that answers for its successor": {
			copy: new(newNote("a/1", 2, 7, "lost").by(0xf7, 4)), owner: new(newNote("a/1", 2, 7, "lost").by(0xf7, 4)), asOf: minuteOf(5),
			event: change(inbox.Updated, newNote("a/1", 2, 5, "").by(5, 5)).Event,
			want:  newNote("a/1", 2, 7, "lost").by(0xf7, 4), err: inbox.ErrBehind,
		},
		"its answer to an event that it has made itself": {
			copy: new(mine.by(3, 5)), owner: new(newNote("a/1", 2, 7, "lost").by(0xf7, 4)), asOf: minuteOf(5),
			event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(0xf7, 4)).Event, want: mine.by(3, 5),
		},
		"a replica that lags": {
			copy: new(newNote("a/1", 2, 5, "five").by(5, 4)), owner: new(mine.by(3, 3)), asOf: minuteOf(4),
			event: change(inbox.Updated, newNote("a/1", 2, 7, "").by(7, 4)).Event,
			want:  newNote("a/1", 2, 5, "five").by(5, 4), err: inbox.ErrBehind,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(t)
			if s.away, s.asOf = tc.away, tc.asOf; tc.owner != nil {
				s.has(*tc.owner)
			}
			if tc.copy != nil {
				s.apply(t, change(inbox.Put, *tc.copy))
			}
			if tc.young {
				tc.event.OccurredAt = time.Now()
			}
			err := s.Repair(t.Context(), tc.event)
			if reported := strings.Contains(s.said.String(), "level=ERROR"); reported != tc.reported {
				t.Errorf("reported as a divergence: %v; said %q", reported, s.said.String())
			}
			if fails := tc.err != nil || tc.says != nil; (err != nil) != fails || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("error %v", err)
			}
			for _, part := range tc.says {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			if eventing.IsPermanent(err) != tc.permanent {
				t.Errorf("error %v is permanent: %v", err, !tc.permanent)
			}
			if diff := cmp.Diff([]note{tc.want}, s.rows(t)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if !slices.Equal(s.asked, []string{"a/1"}) || s.waits[0] <= consistency.FetchTimeout {
				t.Errorf("asked for %v, with %s to answer; want it once, with more than a reader's time", s.asked, s.waits)
			}
		})
	}
}

// While a slow owner is asked, no connection and no lock is held.
func TestTheOwnerIsAskedOutsideOfAnyTransaction(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.has(newNote("a/1", 1, 2, "two"))
	s.notes.beforeFetch = func() {
		if n := s.db.Stat().AcquiredConns(); n != 0 {
			t.Errorf("%d connections are in use", n)
		}
	}
	if err := s.Repair(t.Context(), change(inbox.Updated, newNote("a/1", 1, 2, "")).Event); err != nil {
		t.Error(err)
	}
	s.db.Close()
	err := s.Repair(t.Context(), change(inbox.Updated, newNote("a/1", 1, 2, "")).Event)
	if err == nil || !strings.Contains(err.Error(), "take over the owner's state") || eventing.IsPermanent(err) || errors.Is(err, consistency.ErrOwnerUnavailable) {
		t.Errorf("without a database: %v; want that it, and not the owner, is at fault", err)
	}
}

// A repair notifies the waiting readers, here and at other instances, and so does the
// handler once its events are committed.
func TestRepairAndCommitNotifyReaders(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.has(newNote("a/1", 1, 2, "two"))
	log := slog.New(slog.DiscardHandler)
	heard, other := make(chan notify.Notification, 100), notify.New(s.db, "", "replica", log)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 2)
	go func() { ended <- s.waiters.Run(ctx, log, func() {}) }()
	go func() { ended <- other.Run(ctx, func(b notify.Notification) { heard <- b }) }()
	t.Cleanup(func() {
		stop()
		<-ended
		<-ended
	})
	awaitNotification := func(key string) {
		t.Helper()
		deadline := time.After(patience)
		for {
			select {
			case b := <-heard:
				if b.Mentions(key) && !b.Mentions("note/other/1") {
					return
				}
			case <-deadline:
				t.Fatalf("no notification for %s", key)
			}
		}
	}
	pgtest.Until(t, "the other instance listens", other.Connected)
	if err := s.Repair(t.Context(), change(inbox.Updated, newNote("a/1", 1, 2, "")).Event); err != nil {
		t.Fatal(err)
	}
	awaitNotification("note/a/1")

	e := change(inbox.Put, newNote("b/1", 1, 1, "")).Event
	e.ID, e.Payload = uuid.New(), []byte("by an event")
	err := pgx.BeginFunc(t.Context(), s.db, func(tx pgx.Tx) error {
		o, err := inbox.ApplyOne(t.Context(), tx, s, e)
		if o != inbox.Applied {
			t.Errorf("outcome %v", o)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Committed(ctx, consistency.PositionOf(e))
	awaitNotification("note/b/1")
	if err := s.Repair(t.Context(), e); !errors.Is(err, projection.ErrUnknown) {
		t.Errorf("the handler's repair: %v", err)
	}
	if diff := cmp.Diff([]note{newNote("a/1", 1, 2, "two"), newNote("b/1", 1, 1, "by an event")}, s.rows(t)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// Another transaction holds the row for long. The repair gives up before its pool's other users
// have to wait for a connection.
func TestARepairDoesNotWaitForALock(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	mine := newNote("a/1", 1, 1, "one")
	s.apply(t, change(inbox.Created, mine))
	s.has(newNote("a/1", 1, 3, "three"))
	tx := pgtest.Begin(t, s.admin)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, tx, `SELECT FROM app.notes FOR UPDATE`)
	e := change(inbox.Updated, newNote("a/1", 1, 3, "")).Event
	if err := s.Repair(t.Context(), e); !errors.Is(err, txn.ErrLocked) || eventing.IsPermanent(err) {
		t.Errorf("repair: %v, want that another transaction holds the row", err)
	}
	pgtest.End(t, tx.Rollback)
	if err := s.Repair(t.Context(), e); err != nil {
		t.Error(err)
	}
}
