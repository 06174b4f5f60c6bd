package catalog

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	eventsv1 "example.com/lockstep/proto/video/events/v1"
)

// ofAnother is e in another history: that of an owner which lost its last commits in a
// failover, and went on an hour later.
func ofAnother(e eventing.Event, previous uuid.UUID) eventing.Event {
	var video eventsv1.Event
	e = moved(e, previous)
	_ = proto.Unmarshal(e.Payload, &video)
	video.EventId = e.ID.String()
	return withPayload(e, &video)
}

// moved are the attributes of ofAnother.
func moved(e eventing.Event, previous uuid.UUID) eventing.Event {
	e.ID, e.PreviousEventID, e.OccurredAt = another(e.AggregateID, e.Version), previous, e.OccurredAt.Add(time.Hour)
	return e
}

func another(aggregateID string, version int64) uuid.UUID { return eventID(aggregateID, -version) }

func withPrevious(e eventing.Event) eventing.Event {
	e.PreviousEventID = eventID(e.AggregateID, e.Version-1)
	return e
}

// The owner has lost version 2 and makes versions 2 and 3 again. The row ends in the
// owner's state, and the divergence is reported, in any order of the owner's events and
// with any of the lost ones applied before.
func TestAnOwnerThatLostCommits(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for name, story := range map[string]func(id uuid.UUID) (lost, then []eventing.Event){
		"the version again": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{titled(id, 2, "lost")}, []eventing.Event{patchedEvent(id)}
		},
		"the next version first": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{titled(id, 2, "lost")},
				[]eventing.Event{ofAnother(titled(id, 3, "third"), another(id.String(), 2))}
		},
		"a lower version": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{titled(id, 2, "lost"), titled(id, 3, "lost, too"), titled(id, 4, "lost as well")},
				[]eventing.Event{patchedEvent(id)}
		},
		"a deletion was lost": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{deletedEvent(id, 2)}, []eventing.Event{patchedEvent(id)}
		},
		"a deletion was lost, and the version after it comes": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{deletedEvent(id, 2)},
				[]eventing.Event{ofAnother(titled(id, 3, "third"), another(id.String(), 2))}
		},
		"the owner deletes it instead": func(id uuid.UUID) (lost, then []eventing.Event) {
			return []eventing.Event{titled(id, 2, "lost")},
				[]eventing.Event{ofAnother(deletedEvent(id, 2), eventID(id.String(), 1))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := newVideoID()
			f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
			lost, then := story(id)
			for _, e := range lost {
				f.must(t, inbox.Applied, withPrevious(e))
			}
			last := then[len(then)-1]
			has := ownersVideo(id, last.Version, "as the owner has it")
			has.LastEventId, has.UpdatedAt = last.ID.String(), pb(last.Version+60)
			if last.Type == "VideoDeleted" {
				has.DeletedAt = has.UpdatedAt
			}
			f.peer.has(has)
			f.must(t, inbox.Diverged, then[0])
			for _, e := range then {
				if err := f.projector.videos.Repair(t.Context(), e); err != nil {
					t.Fatal(err)
				}
			}
			f.must(t, inbox.Stale, then...)
			v := f.row(t, id)
			if v.Version != last.Version || (v.DeletedAt != nil) != (has.DeletedAt != nil) || v.DeletedAt == nil && v.Title != "as the owner has it" {
				t.Errorf("row %+v; the owner has %v", v, has)
			}
			for _, e := range lost {
				outcome, err := f.apply(t, withPrevious(e))
				if err != nil || outcome == inbox.Applied {
					t.Errorf("version %d of the lost history: %v, %v", e.Version, outcome, err)
				}
				if outcome == inbox.Gap || outcome == inbox.Diverged {
					if err := f.projector.videos.Repair(t.Context(), withPrevious(e)); !errors.Is(err, inbox.ErrLost) {
						t.Errorf("version %d of the lost history: %v; want it lost", e.Version, err)
					}
				}
			}
			if after := f.row(t, id); after.Version != v.Version || after.Title != v.Title {
				t.Errorf("the lost history came back: %+v", after)
			}
		})
	}
}

// patchedEvent is the owner's second event of version 2, which it had lost.
func patchedEvent(id uuid.UUID) eventing.Event {
	return ofAnother(titled(id, 2, "another"), eventID(id.String(), 1))
}

// An older release has no last_event_id and does not set it. When such a release moves a row
// to another version, or to another epoch at the same version, the column must become null.
func TestOlderReleaseClearsTheEventID(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"))
	engaged := f.engaged(t, uuid.New(), newVideoID())
	for table, about := range map[string]uuid.UUID{
		`video_projection`:                  id,
		`video_user_engagements_projection`: engaged,
	} {
		for set, kept := range map[string]bool{
			`version = version + 1`:                                             false,
			`epoch = epoch + 1`:                                                 false,
			`epoch = epoch + 1, version = version + 1`:                          false,
			`applied_at = clock_timestamp()`:                                    true,
			`epoch = epoch + 1, last_event_id = '` + uuid.NewString() + `'`:     true,
			`version = version + 1, last_event_id = '` + uuid.NewString() + `'`: true,
		} {
			var before, after uuid.NullUUID
			err := pgx.BeginFunc(t.Context(), f.pool, func(tx pgx.Tx) error {
				fresh := `UPDATE ` + table + ` SET last_event_id = gen_random_uuid() WHERE video_id = $1 RETURNING last_event_id`
				if err := tx.QueryRow(t.Context(), fresh, about).Scan(&before); err != nil {
					return err
				}
				return tx.QueryRow(t.Context(), `UPDATE `+table+` SET `+set+` WHERE video_id = $1 RETURNING last_event_id`, about).Scan(&after)
			})
			if err != nil || !before.Valid || after.Valid != kept {
				t.Errorf("%s, %s: %v after %v (%v), want an event: %v", table, set, after, before, err, kept)
			}
		}
	}
}

// Rows and events from before event ids were kept, and an owner that does not send its
// own: then only versions count, and no row moves back.
func TestRowsAndEventsWithoutEventIDs(t *testing.T) {
	t.Parallel()
	f, id := setUp(t), newVideoID()
	f.must(t, inbox.Applied, createdEvent(id, 1, "first"), titled(id, 2, "second"))
	// A release without the column has applied the third.
	pgtest.Exec(t, f.pool, `UPDATE video_projection SET version = 3, updated_at = $2 WHERE video_id = $1`, id, at(3))
	f.must(t, inbox.Applied, withPrevious(titled(id, 4, "fourth")))
	pgtest.Exec(t, f.pool, `UPDATE video_projection SET last_event_id = NULL, version = 2, updated_at = $2 WHERE video_id = $1`, id, at(2))
	// Where an id is unknown, the times decide.
	f.must(t, inbox.Diverged, patchedEvent(id))
	same := patchedEvent(id)
	same.OccurredAt = at(2)
	f.must(t, inbox.Stale, same)
	f.must(t, inbox.Applied, ofAnother(titled(id, 3, "third"), another(id.String(), 2)))
	f.must(t, inbox.Applied, ofAnother(titled(id, 4, "of an owner that names no predecessor"), uuid.Nil))
	f.peer.has(ownersVideo(id, 4, "of an owner that names no event"))
	f.must(t, inbox.Diverged, titled(id, 4, "with another id"))
	if err := f.projector.videos.Repair(t.Context(), titled(id, 4, "with another id")); err != nil {
		t.Fatal(err)
	}
	f.must(t, inbox.Stale, titled(id, 4, "with another id"))
	if v := f.row(t, id); v.Title != "of an owner that names no event" {
		t.Errorf("row %+v", v)
	}
}
