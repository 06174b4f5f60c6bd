// Package catalog is a read model of videos, of users' engagements with them, and of the
// owner's other aggregates. An answer is as fresh as its reader requires. This service owns none of
// these aggregates. It follows the events of the service that owns them.
//
//	inbox.Consumer ─▶ Projector.Handler ─▶ video_projection ─▶ Service.Get ─▶ REST, gRPC
//	                       │ gap                                    │ not there in time
//	                       └───────────────── owner ────────────────┘
//
// An event passes three handlers. timed measures the canary. [inbox.Route] finds the
// [projection.Projection] of its type, and that calls videos or engagements.
//
// The projection only moves forward, by the rule in [inbox.Decide]. A read with a consistency token
// is never answered with anything older than the token. The read waits for the projection. If the
// wait ends before the projection has the version, the read gets the owner's state. If the owner
// does not answer, the read fails. A reader gets older data only on request, together with the
// versions that the answer lacks.
//
// Files: this one has the read of a video, list.go the lists of videos, and problems.go their errors.
// videos.go, engagements.go and each file like them have one type of aggregate: its events,
// its rows, and the calls to its owner. events.go and versioned.go have the code that all types share,
// projector.go puts the types together, and canary.go measures. The files store_*.go have the SQL
// statements, and search.go bounds searches. rest.go and grpc.go are the two protocols, access.go says
// who may call what, live.go has the page, and serve.go has the wiring. windows.go compares how long
// events are kept. watch.go compares the read model with its owner, with the calls in reconcile.go.
// rebuild.go, erase.go and offsets.go have this service's parts of the operators' commands, and
// offsets.go has the consumer with checkpoints. Package projection moves the rows of all types.
package catalog

import (
	"context"
	"errors"
	"log/slog"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/auth"
	"example.com/lockstep/internal/problem"
	"example.com/lockstep/migrations"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/notify"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

// Source is the origin of an answer's data: the projection or the owner.
type Source string

// The sources of an answer.
const (
	SourceProjection Source = "projection"
	SourceAuthority  Source = "authority"
)

// sourceOf returns the source of an answer to a read with outcome o.
func sourceOf(o consistency.Outcome) Source {
	if o == consistency.Authority {
		return SourceAuthority
	}
	return SourceProjection
}

// MaxWaiting is the default limit of readers that wait at the same time. Each waiting reader holds a
// network connection and some 30 kB, and does not query the database. If a platform bounds the
// requests of an instance, set the limit to half of that bound. The other half is then left to reads
// that need not wait.
const MaxWaiting = 10_000

// NewWaiters returns waiters for the projections in db, with up to limit readers that wait at once.
// The instances on that database notify each other. listenURL is the parameter of notify.New.
func NewWaiters(limit int, db *pgxpool.Pool, listenURL string, log *slog.Logger) *consistency.Waiters {
	return newWaiters(limit, db, notify.New(db, listenURL, "consistency", log))
}

func newWaiters(limit int, db *pgxpool.Pool, b *notify.Notifier) *consistency.Waiters {
	return consistency.NewWaiters(limit, projections{db}, b)
}

// Service answers reads of the projector's rows.
type Service struct {
	db        *pgxpool.Pool
	writer    *txn.Writer // writes the owner's rows that a read has fetched
	projector *Projector
	reader    *consistency.Reader
	searches  *searches
}

// NewService returns the reads of p's rows in db.
func NewService(db *pgxpool.Pool, p *Projector) *Service {
	return &Service{
		db: db, writer: txn.NewWriter(db), projector: p,
		reader: consistency.NewReader(p.waiters), searches: newSearches(db.Config().MaxConns),
	}
}

// scopeOf returns the scope of a request, which is the rows of the caller's tenant.
func scopeOf(caller auth.Principal) tenant.Scope {
	return tenant.One(migrations.Catalog.RequestRole(), caller.Tenant)
}

// Answer is a video as a read found it. If the video is older than the reader's token requires, Stale
// names the required version. Stale is empty unless the reader has allowed stale answers.
type Answer struct {
	Video
	Source Source                       `json:"source"`
	Stale  []consistency.StaleAggregate `json:"stale,omitempty"`
}

// metadata returns the metadata of the answer, which is the same on every protocol. It is empty if
// the answer shows neither a video nor a deletion. Later reads with the token in the metadata are
// at least as fresh as the answer.
func (a Answer) metadata() map[string]string {
	if a.Version == 0 {
		return nil
	}
	return map[string]string{
		"consistency-source":  string(a.Source),
		"consistency-version": strconv.FormatInt(a.Version, 10),
		"consistency-token":   consistency.Token{Tenant: a.TenantID, Positions: []consistency.Position{a.position()}}.String(),
	}
}

// VideoRequirement returns the freshness that q requires. Of the positions in q's token, the
// positions of videos count.
// The positions of engagements count, too, because the counters of a video are sums over engagements.
func VideoRequirement(q consistency.Request) (consistency.Requirement, error) {
	required, err := q.Requirement(videoType, isCanonical)
	required, err = withEngagements(required, err)
	return required, problemOf(err)
}

// Get returns a video of the caller's tenant. Of the positions in required, the position of this
// video counts.
// The positions of the caller's engagements with the video count, too, and its counters then include them.
// For a deleted video, Get returns the error VIDEO_DELETED, and an Answer for the metadata.
func (s *Service) Get(ctx context.Context, caller auth.Principal, id uuid.UUID, required consistency.Requirement) (Answer, error) {
	q := videoQuery{service: s, tenant: caller.Tenant, scope: scopeOf(caller), id: id, required: required.ForAggregate(videoType, id.String())}
	counted := s.counted(caller, required, &q) // reads as s.reader does if required has no engagements
	outcome, err := counted.Read(ctx, q.required, &q)
	if err != nil {
		return Answer{}, problemOf(err)
	}
	a := Answer{Video: q.video, Source: sourceOf(outcome)}
	if outcome == consistency.Stale {
		a.Stale = q.required.Unmet(a.position())
	}
	switch {
	case a.Version == 0:
		missing := problem.New(problem.CodeNotFound, "VIDEO_NOT_FOUND", "There is no such video.")
		if len(a.Stale) > 0 {
			missing.Extra = map[string]any{"at_least": a.Stale[0].AtLeast} // the video is on its way
		}
		return Answer{}, missing
	case a.DeletedAt != nil:
		gone := problem.New(problem.CodeGone, "VIDEO_DELETED", "The video was deleted.")
		gone.Extra = map[string]any{"version": a.Version, "deleted_at": *a.DeletedAt, "source": a.Source}
		return a, gone
	case a.Source == SourceAuthority:
		if a.Counters, err = readCounters(ctx, s.db, q.scope, id); err != nil {
			return Answer{}, err
		}
	}
	a.Stale = append(a.Stale, counted.stale...)
	return a, nil
}

// videoQuery is the consistency.Query of one Get.
type videoQuery struct {
	service  *Service
	tenant   string
	scope    tenant.Scope
	id       uuid.UUID
	required consistency.Requirement
	video    Video
}

// ReadProjection reads the row. If there is no row, but the reader requires a position or full
// consistency, ReadProjection returns Absent. The projection alone cannot know that there is no
// such video.
func (q *videoQuery) ReadProjection(ctx context.Context) (consistency.Freshness, error) {
	var err error
	q.video, err = readVideo(ctx, q.service.db, q.scope, q.id)
	switch {
	case q.video.Version == 0 && (len(q.required.Positions()) > 0 || q.required.FullyConsistent()):
		return consistency.Absent, err
	case len(q.required.Unmet(q.video.position())) > 0:
		return consistency.Behind, err
	}
	return consistency.Reached, err
}

// FetchFromOwner reads the owner's state. It does not write the state to the projection, because a
// later event brings the state there.
func (q *videoQuery) FetchFromOwner(ctx context.Context) error {
	v, err := q.service.projector.videos.FetchRequired(ctx, q.tenant, q.id.String(), q.required)
	if err != nil && !errors.Is(err, projection.ErrUnknown) {
		return err
	}
	q.video = v // of version 0 if the owner does not know the video
	return nil
}
