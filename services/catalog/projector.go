package catalog

import (
	"context"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
	replicationv1 "example.com/lockstep/proto/video/replication/v1"
)

// Projector moves the projections in db forward. It applies events, and takes the owner's state
// where events are missing. It notifies the waiters after its own commits. The consumer commits the
// changes of events, and then calls Committed to notify the waiters.
type Projector struct {
	db          *pgxpool.Pool
	owner       replicationv1.ReplicationServiceClient
	shadow      bool
	waiters     *consistency.Waiters
	videos      *projection.Projection[Video]
	engagements *projection.Projection[Engagement]
}

// NewProjector returns the projector of db's projections. conn is a connection to the owner of
// their rows. waiters are the readers that wait for the projections.
func NewProjector(db *pgxpool.Pool, conn *grpc.ClientConn, waiters *consistency.Waiters, log *slog.Logger) *Projector {
	return newProjector(txn.NewWriter(db), conn, waiters, log, false)
}

// newProjector is NewProjector for the served tables or, if shadow is true, for their shadows in a
// rebuild. All projections write with writer.
func newProjector(writer *txn.Writer, conn *grpc.ClientConn, waiters *consistency.Waiters, log *slog.Logger, shadow bool) *Projector {
	db, owner := writer.Pool(), replicationv1.NewReplicationServiceClient(conn)
	return &Projector{
		db: db, owner: owner, shadow: shadow,
		waiters:     waiters,
		videos:      projection.New(writer, videos{db, owner, shadow}, waiters, log),
		engagements: projection.New(writer, engagements{db, owner, shadow}, waiters, log),
	}
}

// Handler returns the handler of events of all types. It applies events as they arrive, and when an
// operator redrives them.
func (p *Projector) Handler() inbox.Handler {
	return inbox.Route{
		videoType:      p.videos,
		engagementType: p.engagements,
	}
}

// Comparisons returns, for each projection, its table and the owner's table, which a check
// compares.
func (p *Projector) Comparisons() []reconcile.Comparison {
	return []reconcile.Comparison{
		{Model: p.videos, Reader: videos{db: p.db, shadow: p.shadow}.compared(), Owner: ownersRows{p.owner, videoType}},
		{Model: p.engagements, Reader: engagements{db: p.db, shadow: p.shadow}.compared(), Owner: ownersRows{p.owner, engagementType}},
	}
}

// Checks returns the checks of the whole read model.
// The counters come last, because a repair of engagements changes them.
func (p *Projector) Checks() (checks []reconcile.Checker) {
	for _, c := range p.Comparisons() {
		checks = append(checks, c)
	}
	return append(checks, reconcile.Recount{Counters: counters{p.db}})
}

// Fillers fill each projection with its owner's rows.
func (p *Projector) Fillers() []backfill.Filler {
	return []backfill.Filler{
		p.videos,
		p.engagements,
	}
}

// isIDOf reports, by type of aggregate, whether an id can be one of that type.
var isIDOf = map[string]func(id string) bool{
	videoType:      isUUID,
	engagementType: isEngagementID,
}

// Positions returns the positions of the wanted aggregates that the projections in db have. It is
// for operators. An id may be any text, because a dead letter has the id that a producer wrote.
func Positions(ctx context.Context, db *pgxpool.Pool, wanted []consistency.Position) ([]consistency.Position, error) {
	valid := slices.DeleteFunc(slices.Clone(wanted), func(p consistency.Position) bool {
		isIDOfType, known := isIDOf[p.AggregateType]
		return known && !isIDOfType(p.AggregateID)
	})
	return projections{db}.Positions(ctx, valid)
}

// projections is the consistency.Projection that the waiters read. It reads all projections in db.
type projections struct{ db *pgxpool.Pool }

// positioned has the rows of one type of aggregate.
type positioned interface {
	Type() string
	positions(ctx context.Context, scope tenant.Scope, wanted []consistency.Position) ([]consistency.Position, error)
}

// Positions reads the positions of aggregates of all types.
func (p projections) Positions(ctx context.Context, wanted []consistency.Position) (found []consistency.Position, err error) {
	byType := map[string][]consistency.Position{}
	for _, at := range wanted {
		byType[at.AggregateType] = append(byType[at.AggregateType], at)
	}
	for _, rows := range []positioned{
		videos{db: p.db},
		engagements{db: p.db},
	} {
		of, err := rows.positions(ctx, tenant.All(), byType[rows.Type()])
		if err != nil {
			return nil, err
		}
		found = append(found, of...)
	}
	return found, nil
}
