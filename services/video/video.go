// Package video owns videos, and users' engagements with them: it alone creates,
// changes and deletes both, and publishes each change as an event.
//
// A write is one transaction, in [Service.Create] and change: the row, its event in the
// outbox and, where the caller sent one, the idempotency key commit together or not at
// all. The lock assigns the version, so versions are in commit order, and each has
// exactly one event. A deletion leaves the row as a tombstone: its version never
// restarts, and a consumer that missed the event can still learn of it.
//
// This file has the transactions; rules.go the rules of a caller's input, list.go the
// lists, store.go all SQL, events.go the events, rest.go and grpc.go the protocols,
// serve.go the wiring. Engagements have the same in the files that begin with
// engagement. internal/idempotency keeps the keys.
package video

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/database"
	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/outbox"
)

// writeTimeout ends a transaction no later than the database's own limits for
// the role do.
const writeTimeout = 10 * time.Second

// Video is the row in the store and the JSON of REST; grpc.go and events.go
// turn it into messages. Columns find their fields by name. Times are UTC with microseconds.
type Video struct {
	ID              uuid.UUID  `json:"video_id" db:"video_id"`
	UploaderID      uuid.UUID  `json:"uploader_id"`
	Title           string     `json:"title"`
	Description     string     `json:"description"`
	DurationSeconds int64      `json:"duration_seconds"`
	PublishedAt     *time.Time `json:"published_at"`
	Version         int64      `json:"version"` // 1, and one more with each change
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
	DeletedAt       *time.Time `json:"deleted_at,omitempty"` // on tombstones only
	// LastEventID is the event that made Version; unknown in rows from before it was
	// kept.
	LastEventID uuid.NullUUID `json:"-"`
}

// Service is the one writer of videos and engagements. Any number may run on one database.
type Service struct {
	db     *pgxpool.Pool
	writer *database.Writer
	wake   func()
}

// NewService returns a service on the schema that db's search_path finds. wake
// is called after each commit that left an event in the outbox.
func NewService(db *pgxpool.Pool, wake func()) *Service {
	return &Service{db: db, writer: database.NewWriter(db), wake: wake}
}

// Write is the idempotency key and the precondition of a write.
type Write struct {
	// Keys are the values of Idempotency-Key, of which there may be one: a
	// retry with it within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless the row has this version; 0 accepts any
	// version or none, serve.Any any existing row.
	IfVersion int64
	// bad has the protocol's faults. They are reported together with those that the
	// rules find.
	bad problem.Violations
}

// check returns the write in the form that its idempotency key is bound to, or all its
// faults. sent is the caller's input.
func (w Write) check(operation string, sent map[string]any, bad problem.Violations) (idempotency.Request, error) {
	w.bad.Merge(bad)
	return idempotency.NewRequest(operation, w.Keys, sent, &w.bad)
}

// Answer is a video or an engagement in the state that the write gave it. If Replayed,
// an earlier write with the same key gave it that state.
type Answer[T any] struct {
	Is       T
	Replayed bool
}

// Create stores v, and assigns its ID, version and times. Video, event and key take one
// round trip between BEGIN and COMMIT.
func (s *Service) Create(ctx context.Context, v Video, w Write) (Answer[Video], error) {
	r, err := w.check("POST /v1/videos", given(v.fields(append(changeable, "uploader_id")...)), v.faults(append(changeable, "uploader_id")...))
	if err != nil {
		return Answer[Video]{}, err
	}
	v.CreatedAt = now()
	v.ID, v.Version, v.UpdatedAt, v.LastEventID = newID(), 1, v.CreatedAt, newEvent()
	events, err := created(ctx, v)
	if err != nil {
		return Answer[Video]{}, fmt.Errorf("create video: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// It may have to wait only for concurrent duplicates of this request.
	err = s.writer.Write(ctx, r.Name(), func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		database.LimitLocks(batch)
		if err := r.Remember(batch, v); err != nil { // first: a concurrent duplicate of this request waits here
			return err
		}
		insertVideo(batch, v)
		return outbox.Append(ctx, tx, batch, events...)
	})
	switch {
	case errors.Is(err, idempotency.ErrAnswered):
		a := Answer[Video]{Replayed: true}
		return a, r.Replay(ctx, s.db, &a.Is)
	case err != nil:
		return Answer[Video]{}, fmt.Errorf("create video: %w", err)
	}
	s.wake()
	return Answer[Video]{Is: v}, nil
}

// Update sets the named fields of a video to their values in to. If they have these
// values already, it makes no version and no event and returns the video unchanged.
func (s *Service) Update(ctx context.Context, id uuid.UUID, fields []string, to Video, w Write) (Answer[Video], error) {
	fields = slices.Compact(slices.Sorted(slices.Values(fields)))
	r, err := w.check("PATCH /v1/videos/"+id.String(), to.fields(fields...), to.faults(fields...))
	if err != nil {
		return Answer[Video]{}, err
	}
	return change(ctx, s, r, id.String(), lockVideo(id), updateVideo, func(v *Video) ([]eventing.Event, error) {
		if err := v.expect(w.IfVersion); err != nil {
			return nil, err
		}
		changed := v.set(fields, to)
		if len(changed) == 0 {
			return nil, nil
		}
		previous := v.step()
		return updated(ctx, *v, previous, changed)
	})
}

// Delete makes a video a tombstone. The reason, which may be empty, travels in
// the event.
func (s *Service) Delete(ctx context.Context, id uuid.UUID, reason string, w Write) (Answer[Video], error) {
	var bad problem.Violations
	bad.Line("reason", reason, 0, maxReason)
	r, err := w.check("DELETE /v1/videos/"+id.String(), given(map[string]any{"reason": reason}), bad)
	if err != nil {
		return Answer[Video]{}, err
	}
	return change(ctx, s, r, id.String(), lockVideo(id), updateVideo, func(v *Video) ([]eventing.Event, error) {
		if err := v.expect(w.IfVersion); err != nil {
			return nil, err
		}
		previous := v.step()
		v.DeletedAt = &v.UpdatedAt
		return deleted(ctx, *v, previous, reason)
	})
}

// change runs one write to a row that may or may not exist. Between BEGIN and COMMIT it
// makes two round trips (TestRoundTrips): lock and read the row; then write row, event
// and idempotency key. lock queues the statements of the first, write the row of the
// second; name is the name that lock locks. decide gets the row that lock has read. It
// changes the row and returns its event, or returns no event and changes nothing.
func change[T any](ctx context.Context, s *Service, r idempotency.Request, name string,
	lock func(*pgx.Batch, **T), write func(*pgx.Batch, T), decide func(*T) ([]eventing.Event, error),
) (a Answer[T], err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var events []eventing.Event
	err = s.writer.Write(ctx, name, func(tx pgx.Tx) error {
		var row *T
		var first *idempotency.Stored
		look := &pgx.Batch{}
		database.LimitLocks(look)
		// The lock comes first: a request that waited for it then sees the answer that
		// the request before it has stored.
		lock(look, &row)
		r.Recall(look, func(s idempotency.Stored) { first = &s })
		if err := tx.SendBatch(ctx, look).Close(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if first != nil {
			// This check comes first: this very request may have deleted the row or
			// moved its version.
			a.Replayed = true
			return r.Answer(*first, &a.Is)
		}
		if events, err = decide(row); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if len(events) > 0 {
			write(batch, *row)
		}
		if err := r.Remember(batch, *row); err != nil {
			return err
		}
		a.Is = *row
		return outbox.Append(ctx, tx, batch, events...)
	})
	if err != nil {
		return Answer[T]{}, fmt.Errorf("change %T: %w", a.Is, err)
	}
	if len(events) > 0 {
		s.wake()
	}
	return a, nil
}

// Get returns a video as it is now; a deleted one only when tombstones are
// asked for.
func (s *Service) Get(ctx context.Context, id uuid.UUID, includeDeleted bool) (Video, error) {
	v, _, err := s.GetAsOf(ctx, id, includeDeleted)
	return v, err
}

// GetAsOf is Get with a time: the answer, or the error that there is no such video,
// reflects everything that had committed by then. It is nil on a standby that does not
// know it.
func (s *Service) GetAsOf(ctx context.Context, id uuid.UUID, includeDeleted bool) (Video, *time.Time, error) {
	v, asOf, err := selectVideo(ctx, s.db, id)
	if err != nil {
		return Video{}, nil, fmt.Errorf("get video: %w", err)
	}
	if v == nil || !includeDeleted {
		if err := v.expect(0); err != nil {
			return Video{}, asOf, err
		}
	}
	return *v, asOf, nil
}

// GetMany returns the named videos, tombstones included, as they are now, with a time
// as in GetAsOf.
func (s *Service) GetMany(ctx context.Context, ids []string) ([]Video, *time.Time, error) {
	if err := checkIDs(ids); err != nil {
		return nil, nil, err
	}
	videos, asOf, err := selectVideos(ctx, s.db, ids)
	if err != nil {
		return nil, nil, fmt.Errorf("get videos: %w", err)
	}
	return videos, asOf, nil
}

// checkIDs reports a fault of video_ids unless they are UUIDs, at least one and at most
// as many as a token may name aggregates.
func checkIDs(ids []string) error {
	var bad problem.Violations
	bad.Require(1 <= len(ids) && len(ids) <= consistency.MaxPositions, "video_ids",
		fmt.Sprintf("must be 1 to %d ids", consistency.MaxPositions))
	for _, id := range ids[:min(len(ids), consistency.MaxPositions)] {
		bad.UUID("video_ids", id)
	}
	return bad.Err()
}

// expect returns an error if v cannot be changed or shown: it never existed (nil), was
// deleted, or is not at version; 0 or less accepts any version.
func (v *Video) expect(version int64) error {
	if v == nil {
		return problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
	}
	return expect("video", v.Version, v.DeletedAt, version)
}

// expect is the check that videos and engagements share: not deleted, and at version
// want.
func expect(what string, version int64, deletedAt *time.Time, want int64) error {
	var e *problem.Error
	switch {
	case deletedAt != nil:
		e = problem.New(problem.CodeGone, strings.ToUpper(what)+"_DELETED", "The "+what+" was deleted.")
		e.Extra = map[string]any{"version": version, "deleted_at": *deletedAt}
	case want > 0 && want != version:
		e = problem.New(problem.CodeStale, "VERSION_MISMATCH", fmt.Sprintf("The %s is at version %d, not %d.", what, version, want))
		e.Extra = map[string]any{"version": version}
	default:
		return nil
	}
	return e
}

// step moves v on by one version, for a new event, and returns the event that made the
// version before.
func (v *Video) step() (previous uuid.NullUUID) {
	previous = v.LastEventID
	v.Version, v.UpdatedAt, v.LastEventID = v.Version+1, after(v.UpdatedAt), newEvent()
	return previous
}

// after is now, or just after t if the clock was set back or another instance's clock
// is ahead: a row's times never decrease with its version.
func after(t time.Time) time.Time {
	t = t.Add(time.Microsecond)
	if clock := now(); clock.After(t) {
		return clock
	}
	return t
}

// position is v's position for consistency tokens and events.
func (v Video) position() consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: v.ID.String(), Epoch: eventing.Epoch, Version: v.Version}
}

// Token is the consistency token of v at its version.
func (v Video) Token() string { return token(v.position()) }

func token(at consistency.Position) string {
	return consistency.Token{Positions: []consistency.Position{at}}.String()
}

// now has the precision that the database keeps.
func now() time.Time { return micros(time.Now()) }

// newID sorts by time, so that new rows go to the end of the index and the
// newest videos are a range of it. Its randomness cannot fail.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// newEvent is the id of an event that is about to be made.
func newEvent() uuid.NullUUID { return uuid.NullUUID{UUID: newID(), Valid: true} }
