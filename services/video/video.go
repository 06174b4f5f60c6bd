// Package video owns videos: it alone creates, changes and deletes them, and
// tells everyone else in events.
//
// A write is one transaction, in [Service.Create] and Service.change: the row,
// its event in the outbox and, where the caller sent one, the idempotency key
// commit together or not at all. The row's lock assigns the version, so
// versions are in commit order, and each has exactly one event. A deleted video
// leaves its row as a tombstone: its version never restarts, and a consumer
// that missed the event can still learn of it.
//
// Here are the transactions; rules.go says what a caller may write, list.go what
// a list holds, store.go all SQL, events.go what consumers see, rest.go and
// grpc.go the protocols, serve.go the wiring. internal/idempotency keeps the keys.
package video

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
// turn it into messages. Times are UTC with microseconds.
type Video struct {
	ID              uuid.UUID  `json:"video_id"`
	UploaderID      uuid.UUID  `json:"uploader_id"`
	Title           string     `json:"title"`
	Description     string     `json:"description"`
	DurationSeconds int64      `json:"duration_seconds"`
	PublishedAt     *time.Time `json:"published_at"`
	Version         int64      `json:"version"` // 1, and one more with each change
	CreatedAt       time.Time  `json:"created_at"`
	UpdatedAt       time.Time  `json:"updated_at"`
	DeletedAt       *time.Time `json:"deleted_at,omitempty"` // on tombstones only
}

// Service is the one writer of videos. Any number may run on one database.
type Service struct {
	db   *pgxpool.Pool
	wake func()
}

// NewService returns a service on the schema that db's search_path finds. wake
// is called after each commit that left an event in the outbox.
func NewService(db *pgxpool.Pool, wake func()) *Service {
	return &Service{db: db, wake: wake}
}

// Write is what comes along with a write.
type Write struct {
	// Keys are the values of Idempotency-Key, of which there may be one: a
	// retry with it within 24 hours gets the first answer.
	Keys []string
	// IfVersion makes the write fail unless the video has this version; 0 is any.
	IfVersion int64
	// bad is what the protocol found wrong. It is reported together with what
	// the rules find.
	bad problem.Faults
}

// check returns the write as its idempotency key knows it, or all that is wrong.
func (w Write) check(operation string, body any, bad problem.Faults) (idempotency.Request, error) {
	w.bad.Merge(bad)
	r, err := idempotency.NewRequest(operation, w.Keys, body, &w.bad)
	if bad := w.bad.Err(); bad != nil {
		return r, bad
	}
	return r, err
}

// Answer is what a write made, or made the first time.
type Answer struct {
	Video    Video
	Replayed bool
}

// Create stores v, whose ID, version and times it assigns. Video, event and key
// take one round trip between BEGIN and COMMIT.
func (s *Service) Create(ctx context.Context, v Video, w Write) (Answer, error) {
	r, err := w.check("POST /v1/videos", v, v.faults(append(changeable, "uploader_id")...))
	if err != nil {
		return Answer{}, err
	}
	v.CreatedAt = now()
	v.ID, v.Version, v.UpdatedAt = newID(), 1, v.CreatedAt
	events, err := created(ctx, v)
	if err != nil {
		return Answer{}, fmt.Errorf("create video: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		if err := r.Remember(batch, v); err != nil { // first: a twin of this request waits here
			return err
		}
		insertVideo(batch, v)
		return outbox.Append(ctx, tx, batch, events...)
	})
	switch {
	case errors.Is(err, idempotency.ErrAnswered):
		a := Answer{Replayed: true}
		return a, r.Replay(ctx, s.db, &a.Video)
	case err != nil:
		return Answer{}, fmt.Errorf("create video: %w", err)
	}
	s.wake()
	return Answer{Video: v}, nil
}

// Update sets the named fields of a video as they are in to. When they already
// are, it makes no version and no event and answers the video as it is.
func (s *Service) Update(ctx context.Context, id uuid.UUID, fields []string, to Video, w Write) (Answer, error) {
	fields = slices.Compact(slices.Sorted(slices.Values(fields)))
	r, err := w.check("PATCH /v1/videos/"+id.String(), to.only(fields), to.faults(fields...))
	if err != nil {
		return Answer{}, err
	}
	return s.change(ctx, id, w.IfVersion, r, func(v *Video) ([]eventing.Event, error) {
		changed := v.set(fields, to)
		if len(changed) == 0 {
			return nil, nil
		}
		v.step()
		return updated(ctx, *v, changed)
	})
}

// Delete makes a video a tombstone. The reason, which may be empty, travels in
// the event.
func (s *Service) Delete(ctx context.Context, id uuid.UUID, reason string, w Write) (Answer, error) {
	var bad problem.Faults
	bad.Text("reason", reason, 0, maxReason, "")
	r, err := w.check("DELETE /v1/videos/"+id.String(), reason, bad)
	if err != nil {
		return Answer{}, err
	}
	return s.change(ctx, id, w.IfVersion, r, func(v *Video) ([]eventing.Event, error) {
		v.step()
		v.DeletedAt = &v.UpdatedAt
		return deleted(ctx, *v, reason)
	})
}

// change is the transaction of every write to an existing video: a round trip
// that locks and reads, decide, a round trip that writes. decide moves the
// video on and returns the event that says so, or leaves all as it is.
func (s *Service) change(ctx context.Context, id uuid.UUID, ifVersion int64, r idempotency.Request,
	decide func(*Video) ([]eventing.Event, error)) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var events []eventing.Event
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		v, first, err := lockVideo(ctx, tx, id, r)
		if err != nil {
			return err
		}
		if first != nil {
			// Before all else: it may be this very request that deleted the
			// video or moved its version.
			a.Replayed = true
			return r.Answer(*first, &a.Video)
		}
		if err := v.expect(ifVersion); err != nil {
			return err
		}
		if events, err = decide(v); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		if len(events) > 0 {
			updateVideo(batch, *v)
		}
		if err := r.Remember(batch, *v); err != nil {
			return err
		}
		a.Video = *v
		return outbox.Append(ctx, tx, batch, events...)
	})
	if err != nil {
		return Answer{}, fmt.Errorf("change video: %w", err)
	}
	if len(events) > 0 {
		s.wake()
	}
	return a, nil
}

// Get returns a video as it is now; a deleted one only when tombstones are
// asked for.
func (s *Service) Get(ctx context.Context, id uuid.UUID, includeDeleted bool) (Video, error) {
	v, err := selectVideo(ctx, s.db, id)
	if err != nil {
		return Video{}, fmt.Errorf("get video: %w", err)
	}
	if v != nil && includeDeleted {
		return *v, nil
	}
	if err := v.expect(0); err != nil {
		return Video{}, err
	}
	return *v, nil
}

// expect says why nothing more can be done with v, if so: it never was (nil),
// was deleted, or is not at the version, where 0 is any.
func (v *Video) expect(version int64) error {
	var e *problem.Error
	switch {
	case v == nil:
		return problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
	case v.DeletedAt != nil:
		e = problem.New(problem.CodeGone, "VIDEO_DELETED", "The video was deleted.")
		e.Extra = map[string]any{"version": v.Version, "deleted_at": *v.DeletedAt}
	case version != 0 && version != v.Version:
		e = problem.New(problem.CodeStale, "VERSION_MISMATCH", fmt.Sprintf("The video is at version %d, not %d.", v.Version, version))
		e.Extra = map[string]any{"version": v.Version}
	default:
		return nil
	}
	return e
}

// step moves v on by one version. Its time never goes backwards, even where the
// clock did or another instance's is ahead.
func (v *Video) step() {
	v.Version++
	v.UpdatedAt = v.UpdatedAt.Add(time.Microsecond)
	if t := now(); t.After(v.UpdatedAt) {
		v.UpdatedAt = t
	}
}

// Token is the consistency token of v at its version.
func (v Video) Token() string {
	return consistency.Token{Positions: []consistency.Position{{
		AggregateType: aggregateType, AggregateID: v.ID.String(), Epoch: eventing.Epoch, Version: v.Version,
	}}}.String()
}

// now is precise to what a read will find.
func now() time.Time { return micros(time.Now()) }

// newID sorts by time, so that new rows go to the end of the index and the
// newest videos are a range of it. Its randomness cannot fail.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
