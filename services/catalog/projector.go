package catalog

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/replica"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	videov1 "example.com/lockstep/proto/video/v1"
)

// Projector moves the projections in db forward: event by event, and from the owner
// where events are missing. It notifies the waiters after its own commits; after events
// the consumer does so, because it commits those.
type Projector struct {
	waiters     *consistency.Waiters
	videos      replica.Table[Video]
	engagements replica.Table[Engagement]
}

// NewProjector returns the projector of db's projections. conn leads to the owner of
// videos and engagements; waiters are the readers that wait for the projections.
func NewProjector(db *pgxpool.Pool, conn *grpc.ClientConn, waiters *consistency.Waiters, log *slog.Logger) *Projector {
	o := owner{videov1.NewVideoServiceClient(conn), videov1.NewEngagementServiceClient(conn)}
	look := lookAt(db)
	return &Projector{
		waiters: waiters,
		videos: replica.Table[Video]{
			DB: db, Type: aggregateType, Rows: rows, Decode: decode, Snapshot: snapshot, Ask: o.video, AskAll: o.videosNamed,
			Look: look, Waiters: waiters, Log: log,
		},
		engagements: replica.Table[Engagement]{
			DB: db, Type: engagementType, Rows: engagementRows, Decode: decodeEngagement, Snapshot: engagementSnapshot,
			Ask: o.engagement, AskAll: o.engagementsNamed, Look: look, Waiters: waiters, Log: log,
		},
	}
}

func lookAt(db *pgxpool.Pool) consistency.Look {
	return func(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
		return readPositions(ctx, db, wanted)
	}
}

// Handler applies events of both types, as they arrive or when an operator redrives
// them.
func (p *Projector) Handler() inbox.Handler {
	h := inbox.Route(map[string]inbox.Handler{aggregateType: p.videos.Handler(), engagementType: p.engagements.Handler()})
	h.Committed = p.waiters.Notify // once for all
	return h
}

// rows is the projection of videos as package inbox moves it.
var rows = inbox.Rows[Video]{Lock: lockVideos, Position: videoPosition, Onto: onto, Write: videoWriter.Write}

func videoPosition(v Video) inbox.Position {
	return inbox.Position{Epoch: v.Epoch, Version: v.Version, Deleted: v.DeletedAt != nil, EventID: v.LastEventID.UUID, At: v.UpdatedAt}
}

var engagementRows = inbox.Rows[Engagement]{
	Lock: lockEngagements, Position: engagementPosition, Onto: ontoEngagement, Write: engagementWriter.Write,
}

func engagementPosition(e Engagement) inbox.Position {
	return inbox.Position{Epoch: e.Epoch, Version: e.Version, Deleted: e.DeletedAt != nil, EventID: e.LastEventID.UUID, At: e.UpdatedAt}
}
