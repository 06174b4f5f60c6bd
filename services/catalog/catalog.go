// Package catalog is a read model of videos, and of users' engagements with them, that
// is as fresh as its reader demands. It owns neither: it follows the events of the
// service that owns them.
//
//	inbox.Consumer ─▶ Projector.Handler ─▶ video_projection ─▶ Service.Get ─▶ REST, gRPC
//	                       │ gap                                    │ not there in time
//	                       └───────── replica.Table ─── owner ──────┘
//
// The projection only moves forward, by the rule in [inbox.Decide]. A read with a
// consistency token is never answered with anything older: it waits for the projection,
// then asks the owner, then fails. A reader gets older data only on request, together
// with the versions that it misses.
//
// Files: this one holds the reads of videos, query.go their parameters; change.go
// decodes their events and makes rows of them; engagement.go has all of that for
// engagements; projector.go puts both together; store.go has every SQL statement;
// owner.go has the calls to the owner; rest.go and grpc.go the two protocols; serve.go
// the wiring. internal/replica has the common part of both types of rows.
package catalog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/database"
	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/internal/replica"
	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
)

// Video is a video as the projection or its owner has it, and the JSON of REST.
// A tombstone has ID, Version, Epoch, LastEventID, UpdatedAt and DeletedAt, and nothing else.
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
	// LastEventID is the event that made Version, where that is known. Readers do not
	// need it: it is read with the row's lock only.
	LastEventID uuid.NullUUID `json:"-"`
}

// Source is the origin of an answer's data: the projection or the owner.
type Source string

// The sources of an answer.
const (
	SourceProjection Source = "projection"
	SourceAuthority  Source = "authority"
)

// sourceOf is the source of an answer with that outcome.
func sourceOf(o consistency.Outcome) Source {
	if o == consistency.Authority {
		return SourceAuthority
	}
	return SourceProjection
}

// MaxWaiting is the default limit of readers that wait at once. Each holds a connection
// and some 30 kB, and none queries the database. If a platform bounds the requests of
// an instance, half of that bound leaves the other half to reads that need not wait.
const MaxWaiting = 10_000

// NewWaiters returns up to limit readers that wait for db's projection. The instances
// on that database notify each other; listenURL is as notify.New has it.
func NewWaiters(limit int, db *pgxpool.Pool, listenURL string, log *slog.Logger) *consistency.Waiters {
	return newWaiters(limit, db, notify.New(db, listenURL, "consistency", log))
}

func newWaiters(limit int, db *pgxpool.Pool, b *notify.Bell) *consistency.Waiters {
	return consistency.NewWaiters(limit, lookAt(db), b)
}

// Service answers reads of the projector's rows.
type Service struct {
	db        *pgxpool.Pool
	writer    *database.Writer // for owners' states that lists apply
	projector *Projector
	reader    *fresh.Reader
	searches  searches
}

// NewService returns the reads of p's rows in db.
func NewService(db *pgxpool.Pool, p *Projector) *Service {
	return &Service{
		db: db, writer: database.NewWriter(db), projector: p,
		reader: fresh.NewReader(p.waiters), searches: newSearches(db.Config().MaxConns),
	}
}

// Read returns the freshness that q demands; of q's token only the positions of videos
// count.
func Read(q fresh.Request) (fresh.Demand, error) {
	return q.Demand(aggregateType, func(id string) bool {
		parsed, err := parseID(id)
		return err == nil && parsed.String() == id
	})
}

// Answer is a video as a read found it. Stale is empty unless the reader has allowed
// that it is older than its token.
type Answer struct {
	Video
	Source Source      `json:"source"`
	Stale  []fresh.Lag `json:"stale,omitempty"`
}

// metadata is the same on every protocol; it is empty where no video is shown and none
// was deleted. Its token makes later reads at least as fresh as this one.
func (a Answer) metadata() map[string]string {
	if a.Version == 0 {
		return nil
	}
	return map[string]string{
		"consistency-source":  string(a.Source),
		"consistency-version": strconv.FormatInt(a.Version, 10),
		"consistency-token":   consistency.Token{Positions: []consistency.Position{a.position()}}.String(),
	}
}

// Get returns a video. Only the token's position of this video matters. For a deleted
// video, Get returns the error VIDEO_DELETED together with an Answer for the metadata.
func (s *Service) Get(ctx context.Context, id uuid.UUID, d fresh.Demand) (Answer, error) {
	d = d.About(id.String())
	var v Video
	outcome, err := s.reader.Satisfy(ctx, d, func(ctx context.Context) (fresh.Standing, error) {
		stored, err := readVideo(ctx, s.db, id)
		v = stored
		switch {
		case v.Version == 0 && (len(d.Wanted()) > 0 || d.FullyConsistent()):
			return fresh.Nothing, err // the projection cannot know that there is none
		case len(d.Lags(v.position())) == 0:
			return fresh.Met, err
		}
		return fresh.Behind, err
	}, func(ctx context.Context) error {
		owners, err := s.projector.videos.Ask(ctx, id.String(), fresh.AskTimeout)
		switch {
		case errors.Is(err, replica.ErrUnknown) && len(d.Wanted()) == 0:
			v, err = Video{}, nil
		case errors.Is(err, replica.ErrUnknown), err == nil && len(d.Lags(owners.Row.position())) > 0:
			return fresh.ErrAhead
		case err == nil:
			v = owners.Row
		}
		return err
	})
	a := Answer{Video: v, Source: sourceOf(outcome)}
	if outcome == consistency.Stale {
		a.Stale = d.Lags(v.position())
	}
	switch {
	case err != nil:
		return Answer{}, err
	case v.Version == 0:
		missing := problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
		for _, lag := range a.Stale {
			missing.Extra = map[string]any{"at_least": lag.AtLeast} // it is on its way
		}
		return Answer{}, missing
	case v.DeletedAt != nil:
		gone := problem.New(problem.CodeGone, "VIDEO_DELETED", "The video was deleted.")
		gone.Extra = map[string]any{"version": v.Version, "deleted_at": *v.DeletedAt, "source": a.Source}
		return a, gone
	}
	return a, nil
}

// List returns one page of the videos that are not deleted, newest first. Videos that
// the projection does not reach within d's wait are first fetched from the owner. The
// page is then read in one snapshot with the check that they are there.
func (s *Service) List(ctx context.Context, q Query, d fresh.Demand) (Page, error) {
	before, err := q.check()
	err = cmp.Or(err, d.OfACopy())
	if err != nil {
		return Page{}, err
	}
	var videos []Video
	look := func(ctx context.Context, wanted []consistency.Position) (reached int, err error) {
		err = s.searches.do(ctx, q, func(ctx context.Context) (err error) {
			videos, reached, err = listVideos(ctx, s.db, q, before, wanted)
			return err
		})
		return reached, err
	}
	outcome, stale, err := s.projector.videos.List(ctx, s.reader, s.writer, d, look)
	if err != nil {
		return Page{}, err
	}
	videos, next := rest.CutPage(videos, rest.FitPage(videos, q.PageSize, Video.text), func(v Video) uuid.UUID { return v.ID }, q.filter())
	return Page{Videos: videos, Next: next, Source: sourceOf(outcome), Stale: stale}, nil
}
