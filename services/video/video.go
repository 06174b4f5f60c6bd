// Package video owns videos, and what users make of them: it alone creates,
// changes and deletes both, and tells everyone else in events.
//
// A write is one transaction, in [Service.Create] and change: the row, its event
// in the outbox and, where the caller sent one, the idempotency key commit
// together or not at all. The lock assigns the version, so versions are in commit
// order, and each has exactly one event. What is deleted leaves its row as a
// tombstone: its version never restarts, and a consumer that missed the event can
// still learn of it.
//
// Here are the transactions; rules.go says what a caller may write, list.go what
// a list holds, store.go all SQL, events.go what consumers see, rest.go and
// grpc.go the protocols, serve.go the wiring. Engagements have the same in the
// files that begin with engagement. internal/idempotency keeps the keys.
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
	// LastEventID is the event that made Version; unknown in rows of before it was kept.
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

// Write is what comes along with a write.
type Write struct {
	// Keys are the values of Idempotency-Key, of which there may be one: a
	// retry with it within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless the row has this version; 0 is any,
	// serve.Any any but none.
	IfVersion int64
	// bad is what the protocol found wrong. It is reported together with what
	// the rules find.
	bad problem.Faults
}

// check returns the write as its idempotency key knows it, or all that is wrong. sent
// is what the caller has given.
func (w Write) check(operation string, sent map[string]any, bad problem.Faults) (idempotency.Request, error) {
	w.bad.Merge(bad)
	return idempotency.NewRequest(operation, w.Keys, sent, &w.bad)
}

// Answer is a video or an engagement as a write made it, or made it the first time.
type Answer[T any] struct {
	Is       T
	Replayed bool
}

// Create stores v, whose ID, version and times it assigns. Video, event and key
// take one round trip between BEGIN and COMMIT.
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
	// Twins of this request are all that it may wait for.
	err = s.writer.Write(ctx, r.Name(), func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		database.LimitLocks(batch)
		if err := r.Remember(batch, v); err != nil { // first: a twin of this request waits here
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

// Update sets the named fields of a video as they are in to. When they already
// are, it makes no version and no event and answers the video as it is.
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
	var bad problem.Faults
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

// change is the transaction of every write to what may be there: a round trip that
// locks and reads, decide, a round trip that writes. lock queues the first, write
// the row of the second; name is what lock locks. decide gets what lock has read; it
// moves that on and returns the event that says so, or leaves all as it is.
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
		// In this order: whoever waits for the lock sees what its holder has stored.
		lock(look, &row)
		r.Recall(look, func(s idempotency.Stored) { first = &s })
		if err := tx.SendBatch(ctx, look).Close(); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if first != nil {
			// Before all else: it may be this very request that deleted the row or
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

// GetAsOf is Get with a time: all that had committed by then is in the answer, or in
// the error that there is no such video. It is nil on a standby that does not know.
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

// GetMany returns those of the named videos that are or were, as they are now, with a
// time as in GetAsOf.
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

// checkIDs blames video_ids unless it is as many UUIDs as a token may name aggregates.
func checkIDs(ids []string) error {
	var bad problem.Faults
	bad.Unless(1 <= len(ids) && len(ids) <= consistency.MaxPositions, "video_ids",
		fmt.Sprintf("must be 1 to %d ids", consistency.MaxPositions))
	for _, id := range ids[:min(len(ids), consistency.MaxPositions)] {
		bad.UUID("video_ids", id)
	}
	return bad.Err()
}

// expect says why nothing more can be done with v, if so: it never was (nil),
// was deleted, or is not at the version, where 0 or less is any.
func (v *Video) expect(version int64) error {
	if v == nil {
		return problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
	}
	return expect("video", v.Version, v.DeletedAt, version)
}

// expect is that for any row that there is or was.
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

// step moves v on by one version, which an event is to make, and returns the event
// that made the one before.
func (v *Video) step() (previous uuid.NullUUID) {
	previous = v.LastEventID
	v.Version, v.UpdatedAt, v.LastEventID = v.Version+1, after(v.UpdatedAt), newEvent()
	return previous
}

// after is now, but no time goes backwards with a row's version, even where the
// clock did or another instance's is ahead.
func after(t time.Time) time.Time {
	t = t.Add(time.Microsecond)
	if clock := now(); clock.After(t) {
		return clock
	}
	return t
}

// position is what consistency tokens and events say of v.
func (v Video) position() consistency.Position {
	return consistency.Position{AggregateType: aggregateType, AggregateID: v.ID.String(), Epoch: eventing.Epoch, Version: v.Version}
}

// Token is the consistency token of v at its version.
func (v Video) Token() string { return token(v.position()) }

func token(at consistency.Position) string {
	return consistency.Token{Positions: []consistency.Position{at}}.String()
}

// now is precise to what a read will find.
func now() time.Time { return micros(time.Now()) }

// newID sorts by time, so that new rows go to the end of the index and the
// newest videos are a range of it. Its randomness cannot fail.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// newEvent names an event that is to be.
func newEvent() uuid.NullUUID { return uuid.NullUUID{UUID: newID(), Valid: true} }
