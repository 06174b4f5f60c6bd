package catalog

import (
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing/rebuild"
)

// shadows are the tables that a rebuild keeps besides those that are served.
var shadows = []string{
	rebuild.Shadow(videoTable),
	rebuild.Shadow(engagementTable),
}

// NewRebuild returns the rebuild of db's projections from their owner, to whom conn leads. db
// connects as rebuild.New requires. No reader waits for what a rebuild writes: the waiters of
// the process that rebuilds do not run.
func NewRebuild(db *pgxpool.Pool, conn *grpc.ClientConn, log *slog.Logger) *rebuild.Rebuild {
	waiters := NewWaiters(0, db, "", log)
	served, shadow := newProjector(db, conn, waiters, log, false), newProjector(db, conn, waiters, log, true)
	before, after := shadow.Comparisons(), served.Comparisons()
	return rebuild.New(db, recountVideos,
		rebuild.Part{Table: videoTable, Key: videoKey, Shadow: shadow.videos, Before: before[0], After: after[0]},
		rebuild.Part{Table: engagementTable, Key: engagementKey, Shadow: shadow.engagements, Before: before[1], After: after[1]},
	)
}
