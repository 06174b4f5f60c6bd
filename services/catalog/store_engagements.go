package catalog

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
	"example.com/lockstep/pkg/eventing/tenant"
)

const engagementColumns = `user_id, video_id, liked, bookmarked, watched_seconds, ` + versionColumns

const engagementTable = "video_user_engagements_projection"

var engagementKey = []string{"user_id", "video_id"}

// compared returns the table of engagements, for a comparison with the owner's table.
func (a engagements) compared() *reconcile.Table {
	return reconcile.NewTable(a.db, a.sql().table, engagementKey, engagementColumns, reconcile.ColumnEpoch)
}

// positions reads the positions that the projection has of the wanted engagements in scope.
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

var servedEngagements, shadowEngagements = engagementStatements(engagementTable), engagementStatements(rebuild.Shadow(engagementTable))

func (a engagements) sql() *tableSQL {
	if a.shadow {
		return shadowEngagements
	}
	return servedEngagements
}

func engagementStatements(table string) *tableSQL {
	return &tableSQL{
		table: table,
		positions: `
			SELECT $3::text AS aggregate_type, concat(user_id, ':', video_id) AS aggregate_id, epoch, version
			  FROM unnest($1::uuid[], $2::uuid[]) AS wanted (user_id, video_id)
			  JOIN ` + table + ` USING (user_id, video_id)`,
		// Postgres does not merge a subquery with FOR UPDATE into the query around it. So whatever
		// the plan is, Postgres finds each row by its key, and locks the rows in the order of the
		// first subquery.
		lock: `
			SELECT ` + engagementColumns + `, ` + lockedColumns + `
			  FROM (SELECT u, v FROM unnest($1::uuid[], $2::uuid[]) AS ids (u, v) ORDER BY u, v) AS named
			 CROSS JOIN LATERAL (
			       SELECT ` + engagementColumns + `, ` + lockedColumns + `
			         FROM ` + table + ` WHERE (user_id, video_id) = (u, v) FOR UPDATE) AS locked`,
		upsert: upsertSQL(table, "user_id, video_id", engagementColumns, "uuid, uuid, bool, bool, bigint"),
		incomplete: `
			WITH next AS MATERIALIZED (
			  SELECT user_id, video_id FROM ` + table + `
			   WHERE incomplete AND revision < $1 AND (user_id, video_id) > ($2::uuid, $3::uuid)
			   ORDER BY user_id, video_id LIMIT $4)
			SELECT concat(user_id, ':', video_id) FROM next WHERE user_id = (SELECT user_id FROM next ORDER BY user_id LIMIT 1) ORDER BY video_id`,
		countIncomplete: countIncompleteSQL(table, "user_id, video_id"),
	}
}

// Upsert writes all steps in one statement.
func (a engagements) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Engagement]) ([]string, error) {
	return upsert(ctx, tx, a.sql().upsert, steps,
		column(steps, func(e Engagement) pgtype.UUID { return pgID(e.UserID) }),
		column(steps, func(e Engagement) pgtype.UUID { return pgID(e.VideoID) }),
		column(steps, func(e Engagement) bool { return e.Liked }),
		column(steps, func(e Engagement) bool { return e.Bookmarked }),
		column(steps, func(e Engagement) int64 { return e.WatchedSeconds }))
}

// listEngagements returns up to limit engagements of a user, newest video first. Their video ids
// are below the id before. All positions in wanted are of this user. reached is how many of these
// positions the projection has reached in the same snapshot.
func listEngagements(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, user, before uuid.UUID, limit int, wanted []consistency.Position,
) (found []Engagement, reached int, err error) {
	sql := `SELECT ` + engagementColumns + ` FROM video_user_engagements_projection
		WHERE user_id = $1 AND video_id < $2 AND deleted_at IS NULL ORDER BY video_id DESC LIMIT $3`
	_, videos := pairs(idsOf(wanted))
	found, reached, err = readPage[Engagement](ctx, db, scope.ReadPage, "video_id", sql, []any{user, before, limit}, wanted, videos,
		"video_user_engagements_projection p ON p.user_id = $1 AND p.video_id = w.id")
	if err != nil {
		return nil, 0, fmt.Errorf("list engagements: %w", err)
	}
	return found, reached, nil
}

// Incomplete returns ids of incomplete rows of one user, from the partial index of incomplete rows.
func (a engagements) Incomplete(ctx context.Context, after string, limit int) ([]string, error) {
	users, videos := pairs([]string{cmp.Or(after, engagementID(uuid.Nil, uuid.Nil))})
	return readIDs(ctx, a.db, a.sql().incomplete,
		engagementRevision, users[0], videos[0], limit)
}

// CountIncomplete counts the incomplete rows, up to limit, in the partial index.
func (a engagements) CountIncomplete(ctx context.Context, limit int) (n int64, err error) {
	err = a.db.QueryRow(ctx, a.sql().countIncomplete, limit).Scan(&n)
	return n, err
}

// pairs splits the ids of engagements into users and videos.
func pairs(ids []string) (users, videos []string) {
	for _, id := range ids {
		user, video, _ := strings.Cut(id, ":")
		users, videos = append(users, user), append(videos, video)
	}
	return users, videos
}
