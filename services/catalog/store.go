package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

const videoColumns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, epoch, created_at, updated_at, deleted_at`

// readVideo returns the zero Video where there is neither video nor tombstone.
func readVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (Video, error) {
	rows, _ := db.Query(ctx, `SELECT `+videoColumns+` FROM video_projection WHERE video_id = $1`, id)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[Video])
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Video{}, nil
	case err != nil:
		return Video{}, fmt.Errorf("read video: %w", err)
	}
	return v, nil
}

// Positions reads the positions of those videos that the projection has.
func (a videos) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	return readPositions(ctx, a.db, `
		SELECT $2::text AS aggregate_type, video_id::text AS aggregate_id, epoch, version
		  FROM video_projection WHERE video_id = ANY($1::uuid[])`, idsOf(wanted), videoType)
}

// Positions reads the positions of those engagements that the projection has.
func (a engagements) Positions(ctx context.Context, wanted []consistency.Position) ([]consistency.Position, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	users, videos := pairs(idsOf(wanted))
	return readPositions(ctx, a.db, `
		SELECT $3::text AS aggregate_type, concat(user_id, ':', video_id) AS aggregate_id, epoch, version
		  FROM unnest($1::uuid[], $2::uuid[]) AS wanted (user_id, video_id)
		  JOIN video_user_engagements_projection USING (user_id, video_id)`, users, videos, engagementType)
}

func readPositions(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) ([]consistency.Position, error) {
	rows, _ := db.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

// Lock locks the rows with these ids.
func (videos) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Video, error) {
	rows, _ := tx.Query(ctx, `
		SELECT `+videoColumns+`, last_event_id FROM video_projection WHERE video_id = ANY ($1::uuid[]) ORDER BY video_id FOR UPDATE`, ids)
	return byID(rows, Video.id)
}

// Upsert writes all steps in one statement. An absent row is inserted if it is still
// absent. An existing row is locked, so its "conflict" is certain, and the statement
// finds it by its key with any plan.
func (videos) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Video]) ([]string, error) {
	rows, _ := tx.Query(ctx, `
		WITH step AS MATERIALIZED (
		  SELECT `+videoColumns+`, last_event_id, present
		    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[],
		                $7::bigint[], $8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[],
		                $12::uuid[], $13::bool[])
		    AS s (`+videoColumns+`, last_event_id, present)
		), inserted AS (
		  INSERT INTO video_projection (`+videoColumns+`, last_event_id)
		  SELECT `+videoColumns+`, last_event_id FROM step WHERE NOT present ORDER BY video_id
		  ON CONFLICT (video_id) DO NOTHING RETURNING video_id
		), updated AS (
		  INSERT INTO video_projection (`+videoColumns+`, last_event_id)
		  SELECT `+videoColumns+`, last_event_id FROM step WHERE present ORDER BY video_id
		  ON CONFLICT (video_id) DO UPDATE
		     SET `+excluded(videoColumns+`, last_event_id`)+`, applied_at = clock_timestamp()
		  RETURNING video_id
		)
		SELECT video_id::text FROM inserted UNION ALL SELECT video_id::text FROM updated`,
		column(steps, func(v Video) pgtype.UUID { return pgID(known(v.ID)) }),
		column(steps, func(v Video) pgtype.UUID { // NULL on tombstones
			return pgtype.UUID{Bytes: v.UploaderID, Valid: v.DeletedAt == nil}
		}),
		column(steps, func(v Video) string { return v.Title }),
		column(steps, func(v Video) string { return v.Description }),
		column(steps, func(v Video) int64 { return v.DurationSeconds }),
		column(steps, func(v Video) *time.Time { return v.PublishedAt }),
		column(steps, func(v Video) int64 { return v.Version }),
		column(steps, func(v Video) int64 { return v.Epoch }),
		column(steps, func(v Video) *time.Time { return v.CreatedAt }),
		column(steps, func(v Video) time.Time { return v.UpdatedAt }),
		column(steps, func(v Video) *time.Time { return v.DeletedAt }),
		column(steps, func(v Video) pgtype.UUID { return pgID(v.LastEventID) }),
		exist(steps, videos{}))
	return writtenIDs(rows)
}

// listVideos returns q's page and, if there is one, the video behind it: newest first,
// since ids are UUIDs of version 7. A title search uses the trigram index where the
// server has one; otherwise it reads titles until the page is full. reached counts the
// positions in wanted that are reached in the page's own snapshot.
func listVideos(ctx context.Context, db *pgxpool.Pool, q Query, before uuid.UUID, wanted []consistency.Position,
) (videos []Video, reached int, err error) {
	sql := `SELECT ` + videoColumns + ` FROM video_projection WHERE deleted_at IS NULL AND video_id < $2`
	args := []any{q.PageSize + 1, before}
	// Only the conditions that the query has, so that each combination is planned for
	// its index.
	and := func(condition string, arg any) {
		args = append(args, arg)
		sql += fmt.Sprintf(" AND %s $%d", condition, len(args))
	}
	if q.UploaderID != "" {
		and("uploader_id =", q.UploaderID)
	}
	if q.Title != "" {
		and("title ILIKE", "%"+strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(q.Title)+"%")
	}
	sql += ` ORDER BY video_id DESC LIMIT $1`
	videos, reached, err = readPage[Video](ctx, db, sql, args, wanted, idsOf(wanted), "video_projection p ON p.video_id = w.id")
	if err != nil {
		return nil, 0, fmt.Errorf("list videos: %w", err)
	}
	return videos, reached, nil
}

// withReached adds the column reached to a page, for readPage: how many of the wanted
// positions, in the arrays from $n on, are reached by the rows that they are joined
// with.
func withReached(page string, n int, joined string) string {
	return fmt.Sprintf(`
		SELECT item.*, reached
		  FROM (SELECT count(*) AS reached FROM unnest($%d::uuid[], $%d::bigint[], $%d::bigint[]) AS w (id, epoch, version)
		          JOIN %s AND (p.epoch, p.version) >= (w.epoch, w.version)) AS at
		  LEFT JOIN (%s) AS item ON true
		 ORDER BY item.video_id DESC`, n, n+1, n+2, joined, page)
}

const engagementColumns = `user_id, video_id, liked, bookmarked, watched_seconds, version, epoch, created_at, updated_at, deleted_at`

// Lock locks the rows with these ids.
func (engagements) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Engagement, error) {
	users, videos := pairs(ids)
	rows, _ := tx.Query(ctx, `
		SELECT `+engagementColumns+`, last_event_id FROM video_user_engagements_projection
		 WHERE (user_id, video_id) IN (SELECT u, v FROM unnest($1::uuid[], $2::uuid[]) AS named (u, v))
		 ORDER BY user_id, video_id FOR UPDATE`, users, videos)
	return byID(rows, Engagement.id)
}

// Upsert writes all steps in one statement, as that of videos does.
func (engagements) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Engagement]) ([]string, error) {
	rows, _ := tx.Query(ctx, `
		WITH step AS MATERIALIZED (
		  SELECT `+engagementColumns+`, last_event_id, present
		    FROM unnest($1::uuid[], $2::uuid[], $3::bool[], $4::bool[], $5::bigint[], $6::bigint[], $7::bigint[],
		                $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::uuid[], $12::bool[])
		    AS s (`+engagementColumns+`, last_event_id, present)
		), inserted AS (
		  INSERT INTO video_user_engagements_projection (`+engagementColumns+`, last_event_id)
		  SELECT `+engagementColumns+`, last_event_id FROM step WHERE NOT present ORDER BY user_id, video_id
		  ON CONFLICT (user_id, video_id) DO NOTHING RETURNING user_id, video_id
		), updated AS (
		  INSERT INTO video_user_engagements_projection (`+engagementColumns+`, last_event_id)
		  SELECT `+engagementColumns+`, last_event_id FROM step WHERE present ORDER BY user_id, video_id
		  ON CONFLICT (user_id, video_id) DO UPDATE
		     SET `+excluded(engagementColumns+`, last_event_id`)+`, applied_at = clock_timestamp()
		  RETURNING user_id, video_id
		)
		SELECT concat(user_id, ':', video_id) FROM inserted UNION ALL SELECT concat(user_id, ':', video_id) FROM updated`,
		column(steps, func(e Engagement) pgtype.UUID { return pgID(known(e.UserID)) }),
		column(steps, func(e Engagement) pgtype.UUID { return pgID(known(e.VideoID)) }),
		column(steps, func(e Engagement) bool { return e.Liked }),
		column(steps, func(e Engagement) bool { return e.Bookmarked }),
		column(steps, func(e Engagement) int64 { return e.WatchedSeconds }),
		column(steps, func(e Engagement) int64 { return e.Version }),
		column(steps, func(e Engagement) int64 { return e.Epoch }),
		column(steps, func(e Engagement) *time.Time { return e.CreatedAt }),
		column(steps, func(e Engagement) time.Time { return e.UpdatedAt }),
		column(steps, func(e Engagement) *time.Time { return e.DeletedAt }),
		column(steps, func(e Engagement) pgtype.UUID { return pgID(e.LastEventID) }),
		exist(steps, engagements{}))
	return writtenIDs(rows)
}

// listEngagements returns up to limit of a user's engagements with videos below
// before, newest video first, and how many of the positions in wanted, all of this
// user, are reached in the same snapshot.
func listEngagements(ctx context.Context, db *pgxpool.Pool, user, before uuid.UUID, limit int, wanted []consistency.Position,
) (found []Engagement, reached int, err error) {
	sql := `SELECT ` + engagementColumns + ` FROM video_user_engagements_projection
		WHERE user_id = $1 AND video_id < $2 AND deleted_at IS NULL ORDER BY video_id DESC LIMIT $3`
	_, videos := pairs(idsOf(wanted))
	found, reached, err = readPage[Engagement](ctx, db, sql, []any{user, before, limit}, wanted, videos,
		"video_user_engagements_projection p ON p.user_id = $1 AND p.video_id = w.id")
	if err != nil {
		return nil, 0, fmt.Errorf("list engagements: %w", err)
	}
	return found, reached, nil
}
