// Package catalog is a read model of videos that is as fresh as its reader asks
// for. It owns no video: it follows the events of the service that does.
//
//	inbox.Consumer ─▶ Projector.Apply ─▶ video_projection ─▶ Service.Get ─▶ REST, gRPC
//	                       │ gap                                  │ not there in time
//	                       └──── Projector.Repair ─── owner ──────┘
//
// The projection only moves forward, by the rule in decide. A read with a
// consistency token is never answered with anything older: it waits for the
// projection, then asks the owner, then fails.
//
// Files: this one holds the reads, query.go what they may ask; projector.go how
// events become rows, change.go what they say; store.go every SQL statement;
// owner.go the way to the owner; rest.go and grpc.go the two protocols; serve.go
// the wiring.
package catalog

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/page"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/pkg/eventing/consistency"
)

// Video is a video as the projection or its owner has it, and the JSON of REST.
// A tombstone has ID, Version, Epoch, UpdatedAt and DeletedAt, and nothing else.
type Video struct {
	ID              uuid.UUID  `json:"video_id"`
	UploaderID      uuid.UUID  `json:"uploader_id"`
	Title           string     `json:"title"`
	Description     string     `json:"description"`
	DurationSeconds int64      `json:"duration_seconds"`
	PublishedAt     *time.Time `json:"published_at"`
	// Version is 0 where there is no video at all.
	Version   int64      `json:"version"`
	Epoch     int64      `json:"-"`
	CreatedAt *time.Time `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	DeletedAt *time.Time `json:"-"`
}

// Source says who vouches for an answer.
type Source string

// The sources of an answer.
const (
	SourceProjection Source = "projection"
	SourceAuthority  Source = "authority"
)

const (
	// maxWaiters bounds the readers that wait at once: each holds a connection
	// and looks at the database a few times a second.
	maxWaiters = 1000
	// askTimeout is short: the reader has waited before, and a draining server
	// gives it 4 s.
	askTimeout = 3 * time.Second
	// The client's pause: after askTimeout and a refusal, an owner that was
	// restarted is back; waiting readers leave faster than that.
	freshRetryAfter, busyRetryAfter = 2 * time.Second, time.Second
)

// Service answers reads of what projector writes. No read waits for it any longer
// once draining is closed.
type Service struct {
	projector *Projector
	draining  <-chan struct{}
}

// Get returns a video. A token of another video demands nothing of this one.
func (s *Service) Get(ctx context.Context, id uuid.UUID, r Read) (Video, Source, error) {
	if r.video != id {
		r = Read{video: id}
	}
	v, source, err := s.fresh(ctx, r, s.projector.owner.get)
	switch {
	case err != nil:
		return Video{}, "", err
	case v.Version == 0:
		return Video{}, "", problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
	case v.DeletedAt != nil:
		gone := problem.New(problem.CodeGone, "VIDEO_DELETED", "The video was deleted.")
		gone.Extra = map[string]any{"version": v.Version, "deleted_at": *v.DeletedAt, "source": source}
		return Video{}, "", gone
	}
	return v, source, nil
}

// List returns one page of the videos that are not deleted, newest first. Where
// the projection does not reach r's token in time, that video is first brought
// forward from its owner.
func (s *Service) List(ctx context.Context, q Query, r Read) (Page, error) {
	before, err := q.check()
	if err != nil {
		return Page{}, err
	}
	source := SourceProjection
	if r.token.Version > 0 {
		if _, source, err = s.fresh(ctx, r, s.projector.pull); err != nil {
			return Page{}, err
		}
	}
	videos, err := listVideos(ctx, s.projector.db, q, before)
	if err != nil {
		return Page{}, err
	}
	videos, next := page.Cut(videos, q.PageSize, func(v Video) uuid.UUID { return v.ID }, q.filter())
	return Page{Videos: videos, Next: next, Source: source}, nil
}

// fresh returns r's video, no older than r's token: the projection's or, when
// that is not there in time, the answer of ask, which goes to the owner.
func (s *Service) fresh(ctx context.Context, r Read,
	ask func(context.Context, uuid.UUID, time.Duration) (Video, error),
) (Video, Source, error) {
	v, err := s.await(ctx, r)
	if err != nil || r.reached(v) {
		return v, SourceProjection, err
	}
	v, err = ask(ctx, r.video, askTimeout)
	switch {
	case err == nil && r.reached(v):
		return v, SourceAuthority, nil
	case err == nil, errors.Is(err, errOwnerLacks):
		err = problem.New(problem.CodeAhead, "TOKEN_AHEAD", "The consistency token is newer than anything that the video's owner has.")
	case errors.Is(err, errOwnerAway):
		err = &problem.Error{
			Code: problem.CodeUnavailable, Reason: "NOT_FRESH_ENOUGH", RetryAfter: freshRetryAfter, Cause: err,
			Detail: "The read model has not reached the consistency token, and the video's owner cannot be asked.",
		}
	}
	return Video{}, "", err
}

// await returns the projection's row as soon as it is fresh enough for r, or as
// it is at the end of the wait.
func (s *Service) await(ctx context.Context, r Read) (Video, error) {
	// A look before the wait: most readers need none, and are served even when
	// no more may wait.
	v, err := readVideo(ctx, s.projector.db, r.video)
	if err != nil || r.reached(v) || r.wait == 0 {
		return v, err
	}
	waiting, stop := context.WithTimeout(ctx, r.budget(ctx))
	defer stop()
	go func() {
		select {
		case <-s.draining:
			stop()
		case <-waiting.Done():
		}
	}()
	_, err = s.projector.waiters.Wait(waiting, videoKey(r.video), func(ctx context.Context) (bool, error) {
		v, err = readVideo(ctx, s.projector.db, r.video)
		return err == nil && r.reached(v), err
	})
	if errors.Is(err, consistency.ErrTooManyWaiters) {
		return v, &problem.Error{
			Code: problem.CodeTooMany, Reason: "TOO_MANY_WAITERS", RetryAfter: busyRetryAfter,
			Detail: "Too many readers are waiting for fresh data.",
		}
	}
	return v, err
}
