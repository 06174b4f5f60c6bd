// Package engagement owns users' engagements with videos, which are the second aggregate of the
// video service. Its transaction, events and protocols are like those of videos.
//
// This file has the transactions. read.go has the reads, store.go has all SQL, and events.go has
// the events. rest.go and grpc.go have the protocols.
package engagement

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/idempotency"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/video/aggregate"
)

const aggregateType = "engagement"

// Engagement is a user's engagement with a video. It is the row in the store and also the JSON of
// REST. A tombstone has only ids, version and times. If the user engages again, the versions
// continue from the tombstone.
type Engagement struct {
	UserID         uuid.UUID `json:"user_id"`
	VideoID        uuid.UUID `json:"video_id"`
	Liked          bool      `json:"liked"`
	Bookmarked     bool      `json:"bookmarked"`
	WatchedSeconds int64     `json:"watched_seconds"`
	aggregate.Revision
}

// Service is the only writer of engagements. Any number of processes may run it on one database.
type Service struct {
	db     *pgxpool.Pool
	writer *aggregate.Writer
}

// NewService returns a service on the schema that db's search_path finds.
func NewService(db *pgxpool.Pool, writer *aggregate.Writer) *Service {
	return &Service{db: db, writer: writer}
}

// Put stores a user's whole engagement with a video. If the stored engagement is equal, Put makes
// no version and no event. Put fails if the video was deleted or never existed. The caller must be
// allowed to act for the user. found are the violations that the protocol has found in the request.
// Put reports them together with the violations of the rules.
//
// The transaction makes two round trips (TestRoundTrips). The first begins, locks and reads the
// engagement, and reads its video and the answer to an earlier request with the same key. The
// second writes the row, the key and the event, and commits.
func (s *Service) Put(
	ctx context.Context, to Engagement, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Engagement], error) {
	found.Merge(to.violations())
	request, err := idempotency.NewRequest(o.Caller.Scope(), "PUT "+to.path(), o.Keys, to.given(), found)
	if err == nil {
		err = aggregate.CheckOwner(o.Caller, to.UserID)
	}
	if err != nil {
		return aggregate.Result[Engagement]{}, err
	}
	return aggregate.Write(ctx, s.writer, o.Caller, to.id(), request, func(ctx context.Context, tx *aggregate.Tx) (Engagement, error) {
		e, video, err := lockWithVideo(ctx, tx, to.UserID, to.VideoID)
		if err != nil {
			return Engagement{}, err
		}
		if err := video.Check("video"); err != nil {
			return Engagement{}, err
		}
		if err := e.checkPut(o.IfVersion); err != nil {
			return Engagement{}, err
		}
		if e.Exists() && e.same(to) {
			return e, tx.Store(ctx, e)
		}
		next := to
		next.Revision = e.Next()
		event, err := putEvent(ctx, next, e.Revision)
		if err != nil {
			return Engagement{}, err
		}
		writeEngagement(tx, next)
		return next, tx.Store(ctx, next, event)
	})
}

// Delete turns an engagement into a tombstone. It also works after the video was deleted, so that
// users can always take back an engagement. It makes two round trips, like Put. The caller and
// found are as for Put.
func (s *Service) Delete(
	ctx context.Context, user, video uuid.UUID, o aggregate.WriteOptions, found problem.Violations,
) (aggregate.Result[Engagement], error) {
	name := Engagement{UserID: user, VideoID: video}
	found.Merge(name.violations())
	request, err := idempotency.NewRequest(o.Caller.Scope(), "DELETE "+name.path(), o.Keys, name.given(), found)
	if err == nil {
		err = aggregate.CheckOwner(o.Caller, user)
	}
	if err != nil {
		return aggregate.Result[Engagement]{}, err
	}
	return aggregate.Write(ctx, s.writer, o.Caller, name.id(), request, func(ctx context.Context, tx *aggregate.Tx) (Engagement, error) {
		e, err := lockEngagement(ctx, tx, user, video)
		if err != nil {
			return Engagement{}, err
		}
		if err := e.Check(aggregateType); err != nil {
			return Engagement{}, err
		}
		if err := e.CheckVersion(aggregateType, o.IfVersion); err != nil {
			return Engagement{}, err
		}
		tombstone := Engagement{UserID: user, VideoID: video, Revision: e.Tombstone()}
		event, err := deletedEvent(ctx, tombstone, e.Revision)
		if err != nil {
			return Engagement{}, err
		}
		writeEngagement(tx, tombstone)
		return tombstone, tx.Store(ctx, tombstone, event)
	})
}

// checkPut checks want, which is the precondition of Put. A version that it names may be the version of
// a tombstone.
func (e Engagement) checkPut(want rest.Condition) error {
	if want.Exists() && !e.Exists() {
		return problem.New(problem.CodeStale, "VERSION_MISMATCH", "There is no such engagement.")
	}
	return e.CheckVersion(aggregateType, want)
}

func (e Engagement) same(as Engagement) bool {
	return e.Liked == as.Liked && e.Bookmarked == as.Bookmarked && e.WatchedSeconds == as.WatchedSeconds
}

// given returns the fields that the caller has set, by their names in REST. It leaves out zero
// values.
func (e Engagement) given() map[string]any {
	return aggregate.Given(map[string]any{"liked": e.Liked, "bookmarked": e.Bookmarked, "watched_seconds": e.WatchedSeconds})
}

func (e Engagement) violations() (found problem.Violations) {
	found.Require(e.UserID != uuid.Nil, "user_id", "must be a UUID")
	found.Require(0 <= e.WatchedSeconds && e.WatchedSeconds <= aggregate.MaxSeconds, "watched_seconds",
		fmt.Sprintf("must lie between 0 and %d", aggregate.MaxSeconds))
	return found
}

// path returns e's path in REST. In all protocols, idempotency keys are bound to this path.
func (e Engagement) path() string {
	return "/v1/users/" + e.UserID.String() + "/engagements/" + e.VideoID.String()
}

// id is e's aggregate id.
func (e Engagement) id() string { return e.UserID.String() + ":" + e.VideoID.String() }

func (e Engagement) position() consistency.Position { return e.Position(aggregateType, e.id()) }

// Token is the consistency token of e at its version.
func (e Engagement) Token() string { return e.Revision.Token(e.position()) }
