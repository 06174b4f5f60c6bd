package catalog

import (
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/txn"
)

// shadows are the tables that a rebuild fills next to the served tables.
var shadows = []string{
	rebuild.Shadow(videoTable),
	rebuild.Shadow(engagementTable),
}

// NewRebuild returns the rebuild of db's projections from their owner. conn is a connection to the
// owner. db connects as rebuild.New requires. No readers wait in the process that rebuilds, so its
// waiters do not run.
func NewRebuild(db *pgxpool.Pool, conn *grpc.ClientConn, log *slog.Logger) *rebuild.Rebuild {
	waiters, writer := NewWaiters(0, db, "", log), txn.NewWriter(db)
	served, shadow := newProjector(writer, conn, waiters, log, false), newProjector(writer, conn, waiters, log, true)
	before, after := shadow.Comparisons(), served.Comparisons()
	// The parts are in the order of Comparisons.
	parts := []rebuild.Part{
		{Table: videoTable, Key: videoKey, Shadow: shadow.videos},
		{Table: engagementTable, Key: engagementKey, Shadow: shadow.engagements},
	}
	for i := range parts {
		parts[i].Before, parts[i].After = before[i], after[i]
	}
	return rebuild.New(db, recountVideos, parts...)
}
