package catalog

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

func TestAppliedAtIsTheDatabasesClockAtEachWrite(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	appliedAt := func() (at time.Time) {
		t.Helper()
		return pgtest.Value[time.Time](t, f.pool, `SELECT applied_at FROM video_projection WHERE video_id = $1`, id)
	}
	f.must(t, inbox.Applied, createdEvent(id, 1, "x"))
	first := appliedAt()
	f.must(t, inbox.Applied, titled(id, 2, "y"))
	if second := appliedAt(); !second.After(first) {
		t.Errorf("applied_at went from %s to %s", first, second)
	}
}

func TestGapWritesNothing(t *testing.T) {
	t.Parallel()
	f, id, unseen := setUp(t), newVideoID(), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	before := f.row(t, id)
	f.must(t, inbox.Gap, titled(id, 3, "third"), titled(unseen, 2, "second"), createdEvent(unseen, 2, "odd"))
	if diff := cmp.Diff(before, f.row(t, id)); diff != "" {
		t.Errorf("a gap changed the row (-before +after):\n%s", diff)
	}
	if v := f.row(t, unseen); v.Version != 0 {
		t.Errorf("a gap made a row: %+v", v)
	}
}

// Two transactions find no row and both insert: the second must see the first's row and
// decide again, whichever of them is newer.
func TestConcurrentFirstSightings(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, tc := range []struct {
		first, second func(id uuid.UUID) eventing.Event
		want          inbox.Outcome
		version       int64
	}{
		{func(id uuid.UUID) eventing.Event { return createdEvent(id, 1, "x") }, func(id uuid.UUID) eventing.Event { return deletedEvent(id, 2) }, inbox.Applied, 2},
		{func(id uuid.UUID) eventing.Event { return deletedEvent(id, 2) }, func(id uuid.UUID) eventing.Event { return createdEvent(id, 1, "x") }, inbox.Stale, 2},
		{func(id uuid.UUID) eventing.Event { return createdEvent(id, 1, "x") }, func(id uuid.UUID) eventing.Event { return createdEvent(id, 1, "x") }, inbox.Stale, 1},
	} {
		id := newVideoID()
		tx := pgtest.Begin(t, f.pool)
		if o, err := inbox.ApplyOne(t.Context(), tx, f.projector.Handler(), tc.first(id)); err != nil || o != inbox.Applied {
			t.Fatalf("first: %v, %v", o, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if o, err := f.apply(t, tc.second(id)); err != nil || o != tc.want {
				t.Errorf("second: %v, %v; want %v", o, err, tc.want)
			}
		})
		waitForLock(t, f)
		pgtest.End(t, tx.Commit)
		wg.Wait()
		if v := f.row(t, id); v.Version != tc.version {
			t.Errorf("version %d, want %d", v.Version, tc.version)
		}
	}
}

// waitForLock returns when a session of the database waits for another one's lock.
func waitForLock(t *testing.T, f *fixture) {
	t.Helper()
	eventually(t, func() bool {
		var waiting bool
		err := f.pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock')`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}
		return waiting
	})
}

// Apply's decision holds until its transaction ends, whatever the decision.
func TestApplyLocksTheRow(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if o, err := inbox.ApplyOne(t.Context(), tx, f.projector.Handler(), createdEvent(id, 1, "first")); err != nil || o != inbox.Stale {
		t.Fatalf("%v, %v", o, err)
	}
	_, err = f.pool.Exec(t.Context(), `SELECT FROM video_projection WHERE video_id = $1 FOR UPDATE NOWAIT`, id)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
		t.Errorf("%v; want the row locked", err)
	}
}

// An operator asks about dead letters, too, whose ids are any text.
func TestPositionsOfAnyID(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	var wanted []consistency.Position
	for _, p := range [][2]string{
		{videoType, id.String()}, {videoType, "\x00"}, {videoType, newVideoID().String()}, {"", ""},
	} {
		wanted = append(wanted, consistency.Position{AggregateType: p[0], AggregateID: p[1]})
	}
	found, err := Positions(t.Context(), f.pool, wanted)
	if diff := cmp.Diff([]consistency.Position{position(id, 1)}, found); err != nil || diff != "" {
		t.Errorf("%v, positions (-want +got):\n%s", err, diff)
	}
}
