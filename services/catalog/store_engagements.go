package catalog

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
)

const engagementColumns = `user_id, video_id, liked, bookmarked, watched_seconds,
	version, epoch, created_at, updated_at, deleted_at, tenant_id`

const engagementTable = "video_user_engagements_projection"

var engagementKey = []string{"user_id", "video_id"}

// compared returns the engagements to compare with their owner's.
func (a engagements) compared() *reconcile.Table {
	return reconcile.NewTable(a.db, a.sql().table, engagementKey, engagementColumns, reconcile.ColumnEpoch)
}

// positions reads the positions of those engagements in scope that the projection has.
func (a engagements) positions(ctx context.Context, scope tenant.Scope, wanted []consistency.Position) ([]consistency.Position, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	users, videos := pairs(idsOf(wanted))
	return readPositions(ctx, a.db, scope, a.sql().positions, users, videos, engagementType)
}

// Lock locks the rows with these ids.
func (a engagements) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Engagement, error) {
	users, videos := pairs(ids)
	return lockRows(ctx, tx, Engagement.id, a.sql().lock, users, videos)
}

// Upsert writes all steps in one statement.
func (a engagements) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Engagement]) ([]string, error) {
	return upsert(ctx, tx, a.sql().upsert, a, steps,
		column(steps, func(e Engagement) pgtype.UUID { return pgID(e.UserID) }),
		column(steps, func(e Engagement) pgtype.UUID { return pgID(e.VideoID) }),
		column(steps, func(e Engagement) bool { return e.Liked }),
		column(steps, func(e Engagement) bool { return e.Bookmarked }),
		column(steps, func(e Engagement) int64 { return e.WatchedSeconds }),
		column(steps, func(e Engagement) int64 { return e.Version }),
		column(steps, func(e Engagement) int64 { return e.Epoch }),
		column(steps, func(e Engagement) *time.Time { return e.CreatedAt }),
		column(steps, func(e Engagement) time.Time { return e.UpdatedAt }),
		column(steps, func(e Engagement) *time.Time { return e.DeletedAt }),
		column(steps, func(e Engagement) string { return e.TenantID }))
}

// listEngagements returns up to limit of a user's engagements with videos below
// before, newest video first, and how many of the positions in wanted, all of this
// user, are reached in the same snapshot.
func listEngagements(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, user, before uuid.UUID, limit int, wanted []consistency.Position,
) (found []Engagement, reached int, err error) {
	sql := `SELECT ` + engagementColumns + ` FROM video_user_engagements_projection
		WHERE user_id = $1 AND video_id < $2 AND deleted_at IS NULL ORDER BY video_id DESC LIMIT $3`
	_, videos := pairs(idsOf(wanted))
	found, reached, err = readPage[Engagement](ctx, db, scope, "video_id", sql, []any{user, before, limit}, wanted, videos,
		"video_user_engagements_projection p ON p.user_id = $1 AND p.video_id = w.id")
	if err != nil {
		return nil, 0, fmt.Errorf("list engagements: %w", err)
	}
	return found, reached, nil
}

// boundOfCount is the video behind a number of engagements, or of rows of counters.
const boundOfCount = `
	SELECT least($2::text::uuid,
	  (SELECT video_id FROM video_user_engagements_projection WHERE video_id >= $1::text::uuid ORDER BY video_id OFFSET $3 LIMIT 1),
	  (SELECT video_id FROM video_counters WHERE video_id >= $1::text::uuid ORDER BY video_id OFFSET $3 LIMIT 1))::text`
