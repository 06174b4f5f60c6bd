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

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	type stored = Video
	alive := func(epoch, version int64) stored { return Video{Epoch: epoch, Version: version} }
	dead := func(epoch, version int64) stored {
		return Video{Epoch: epoch, Version: version, DeletedAt: atp(version)}
	}
	var (
		nothing  Video
		created  = &eventsv1.VideoCreated{}
		updated  = &eventsv1.VideoUpdated{}
		deleted  = &eventsv1.VideoDeleted{}
		snapshot = Video{}
		grave    = Video{DeletedAt: atp(1)}
	)
	for _, tc := range []struct {
		name    string
		stored  Video
		payload any
		epoch   int64
		version int64
		want    inbox.Outcome
	}{
		{"created on nothing", nothing, created, 1, 1, inbox.Applied},
		{"created again", alive(1, 1), created, 1, 1, inbox.Stale},
		{"created after updates", alive(1, 4), created, 1, 1, inbox.Stale},
		{"created after delete", dead(1, 2), created, 1, 1, inbox.Stale},
		{"created that is not the first", nothing, created, 1, 3, inbox.Gap},
		{"created as a successor", alive(1, 2), created, 1, 3, inbox.Gap},
		{"created beyond a tombstone", dead(1, 2), created, 1, 3, inbox.Gap},
		{"created in a new epoch over an old life", alive(1, 2), created, 2, 1, inbox.Gap},
		{"updated on its predecessor", alive(1, 1), updated, 1, 2, inbox.Applied},
		{"updated again", alive(1, 2), updated, 1, 2, inbox.Stale},
		{"updated late", alive(1, 7), updated, 1, 2, inbox.Stale},
		{"updated over a gap", alive(1, 1), updated, 1, 3, inbox.Gap},
		{"updated on nothing", nothing, updated, 1, 2, inbox.Gap},
		{"updated as version 1 on nothing", nothing, updated, 1, 1, inbox.Gap},
		{"updated late after delete", dead(1, 3), updated, 1, 2, inbox.Stale},
		{"updated beyond a tombstone", dead(1, 3), updated, 1, 4, inbox.Gap},
		{"updated in a new epoch, next version", alive(1, 3), updated, 2, 4, inbox.Gap},
		{"updated in an old epoch, next version", alive(2, 3), updated, 1, 4, inbox.Stale},
		{"deleted on its predecessor", alive(1, 1), deleted, 1, 2, inbox.Applied},
		{"deleted over a gap", alive(1, 1), deleted, 1, 9, inbox.Applied},
		{"deleted on nothing", nothing, deleted, 1, 5, inbox.Applied},
		{"deleted again", dead(1, 5), deleted, 1, 5, inbox.Stale},
		{"deleted late", alive(1, 6), deleted, 1, 5, inbox.Stale},
		{"deleted in a new epoch", dead(1, 5), deleted, 2, 3, inbox.Applied},
		{"deleted in an old epoch", alive(2, 1), deleted, 1, 9, inbox.Stale},
		{"owner's state on nothing", nothing, snapshot, 1, 8, inbox.Applied},
		{"owner's state over a gap", alive(1, 3), snapshot, 1, 8, inbox.Applied},
		{"owner's state again", alive(1, 8), snapshot, 1, 8, inbox.Stale},
		{"owner's state late", alive(1, 9), snapshot, 1, 8, inbox.Stale},
		{"owner's state on an older tombstone", dead(1, 7), snapshot, 1, 8, inbox.Gap},
		{"owner's state behind a tombstone", dead(1, 9), snapshot, 1, 8, inbox.Stale},
		{"owner restored to before the delete", dead(1, 9), snapshot, 2, 8, inbox.Applied},
		{"owner's tombstone on nothing", nothing, grave, 1, 8, inbox.Applied},
		{"owner's tombstone over a gap", alive(1, 2), grave, 1, 8, inbox.Applied},
		{"owner's tombstone on an older one", dead(1, 2), grave, 1, 8, inbox.Applied},
		{"owner's tombstone late", alive(1, 9), grave, 1, 8, inbox.Stale},
	} {
		got := decide(tc.stored, change{epoch: tc.epoch, version: tc.version, payload: tc.payload})
		if got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestAppliedAtIsTheDatabasesClockAtEachWrite(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	appliedAt := func() (at time.Time) {
		t.Helper()
		if err := f.pool.QueryRow(t.Context(), `SELECT applied_at FROM video_projection WHERE video_id = $1`, id).Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
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

// Two transactions find no row and both insert: the second must see the first's
// and decide anew, whichever of them is newer.
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
		tx, err := f.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o, err := f.projector.Apply(t.Context(), tx, tc.first(id)); err != nil || o != inbox.Applied {
			t.Fatalf("first: %v, %v", o, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if o, err := f.apply(t, tc.second(id)); err != nil || o != tc.want {
				t.Errorf("second: %v, %v; want %v", o, err, tc.want)
			}
		})
		waitForLock(t, f)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if v := f.row(t, id); v.Version != tc.version {
			t.Errorf("version %d, want %d", v.Version, tc.version)
		}
	}
}

// waitForLock returns when a session of the database waits for another.
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

// What Apply decided holds until its transaction ends, whatever it decided.
func TestApplyLocksTheRow(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	tx, err := f.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if o, err := f.projector.Apply(t.Context(), tx, createdEvent(id, 1, "first")); err != nil || o != inbox.Stale {
		t.Fatalf("%v, %v", o, err)
	}
	_, err = f.pool.Exec(t.Context(), `SELECT FROM video_projection WHERE video_id = $1 FOR UPDATE NOWAIT`, id)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "55P03" {
		t.Errorf("%v; want the row locked", err)
	}
}
