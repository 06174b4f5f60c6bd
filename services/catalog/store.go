package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/replica"
	"example.com/lockstep/pkg/eventing/consistency"
)

const columns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, epoch, created_at, updated_at, deleted_at`

func scanVideo(row pgx.CollectableRow) (v Video, err error) {
	err = scanVideoInto(row, &v)
	return v, err
}

// scanVideoInto reads columns into v, and the columns after them into more.
func scanVideoInto(row pgx.CollectableRow, v *Video, more ...any) error {
	var uploader uuid.NullUUID // NULL on tombstones
	err := row.Scan(append([]any{&v.ID, &uploader, &v.Title, &v.Description, &v.DurationSeconds, &v.PublishedAt,
		&v.Version, &v.Epoch, &v.CreatedAt, &v.UpdatedAt, &v.DeletedAt}, more...)...)
	v.UploaderID = uploader.UUID
	return err
}

// readVideo returns the zero Video where there is neither video nor tombstone.
func readVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (Video, error) {
	rows, _ := db.Query(ctx, `SELECT `+columns+` FROM video_projection WHERE video_id = $1`, id)
	v, err := pgx.CollectExactlyOneRow(rows, scanVideo)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Video{}, nil
	case err != nil:
		return Video{}, fmt.Errorf("read video: %w", err)
	}
	return v, nil
}

// readPositions returns the projections' positions of those aggregates that they have.
func readPositions(ctx context.Context, db *pgxpool.Pool, wanted []consistency.Position) ([]consistency.Position, error) {
	ids := map[string][]string{}
	for _, p := range wanted {
		ids[p.AggregateType] = append(ids[p.AggregateType], p.AggregateID)
	}
	var found []consistency.Position
	query := func(sql string, args ...any) error {
		rows, _ := db.Query(ctx, sql, args...)
		some, err := pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
		found = append(found, some...)
		return err
	}
	var err error
	if videos := ids[aggregateType]; len(videos) > 0 {
		err = query(`
			SELECT $2::text AS aggregate_type, video_id::text AS aggregate_id, epoch, version
			  FROM video_projection WHERE video_id = ANY($1::uuid[])`, videos, aggregateType)
	}
	if engagements := ids[engagementType]; len(engagements) > 0 && err == nil {
		users, videos := pairs(engagements)
		err = query(`
			SELECT $3::text AS aggregate_type, concat(user_id, ':', video_id) AS aggregate_id, epoch, version
			  FROM unnest($1::uuid[], $2::uuid[]) AS wanted (user_id, video_id)
			  JOIN video_user_engagements_projection USING (user_id, video_id)`, users, videos, engagementType)
	}
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

// pairs splits the ids of engagements into users and videos.
func pairs(ids []string) (users, videos []string) {
	for _, id := range ids {
		user, video, _ := strings.Cut(id, ":")
		users, videos = append(users, user), append(videos, video)
	}
	return users, videos
}

func unzip(wanted []consistency.Position) (ids []string, epochs, versions []int64) {
	for _, p := range wanted {
		ids, epochs, versions = append(ids, p.AggregateID), append(epochs, p.Epoch), append(versions, p.Version)
	}
	return ids, epochs, versions
}

// lockVideos is the Lock of the projection's rows.
func lockVideos(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Video, error) {
	rows, _ := tx.Query(ctx, `
		SELECT `+columns+`, last_event_id FROM video_projection WHERE video_id = ANY ($1::uuid[]) ORDER BY video_id FOR UPDATE`, ids)
	return replica.ByID(rows, func(row pgx.CollectableRow) (v Video, err error) {
		err = scanVideoInto(row, &v, &v.LastEventID)
		return v, err
	}, func(v Video) string { return v.ID.String() })
}

var videoWriter = replica.NewWriter("video_projection", "video_id", "video_id::text", videoPosition,
	replica.Of("video_id", "uuid", func(v Video) pgtype.UUID { return bare(v.ID) }),
	replica.Of("uploader_id", "uuid", uploaderOf),
	replica.Of("title", "text", func(v Video) string { return v.Title }),
	replica.Of("description", "text", func(v Video) string { return v.Description }),
	replica.Of("duration_seconds", "bigint", func(v Video) int64 { return v.DurationSeconds }),
	replica.Of("published_at", "timestamptz", func(v Video) *time.Time { return v.PublishedAt }),
	replica.Of("version", "bigint", func(v Video) int64 { return v.Version }),
	replica.Of("epoch", "bigint", func(v Video) int64 { return v.Epoch }),
	replica.Of("created_at", "timestamptz", func(v Video) *time.Time { return v.CreatedAt }),
	replica.Of("updated_at", "timestamptz", func(v Video) time.Time { return v.UpdatedAt }),
	replica.Of("deleted_at", "timestamptz", func(v Video) *time.Time { return v.DeletedAt }),
	replica.Of("last_event_id", "uuid", func(v Video) pgtype.UUID { return maybe(v.LastEventID) }))

// uploaderOf is NULL on tombstones.
func uploaderOf(v Video) pgtype.UUID {
	return pgtype.UUID{Bytes: v.UploaderID, Valid: v.DeletedAt == nil}
}

func bare(id uuid.UUID) pgtype.UUID { return maybe(known(id)) }

func maybe(id uuid.NullUUID) pgtype.UUID { return pgtype.UUID{Bytes: id.UUID, Valid: id.Valid} }

// listVideos returns q's page and, if there is one, the video behind it: newest first,
// since ids are UUIDs of version 7. A title search uses the trigram index where the
// server has one; otherwise it reads titles until the page is full. reached counts the
// positions in wanted that are reached in the page's own snapshot.
func listVideos(ctx context.Context, db *pgxpool.Pool, q Query, before uuid.UUID, wanted []consistency.Position,
) (videos []Video, reached int, err error) {
	sql := `SELECT ` + columns + ` FROM video_projection WHERE deleted_at IS NULL AND video_id < $2`
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
	if len(wanted) > 0 {
		ids, epochs, versions := unzip(wanted)
		n := len(args)
		args = append(args, ids, epochs, versions)
		sql = withReached(sql, n+1, "video_projection p ON p.video_id = w.id")
	}
	videos, reached, err = listed(ctx, db, scanVideo, len(wanted) > 0, sql, args)
	if err != nil {
		return nil, 0, fmt.Errorf("list videos: %w", err)
	}
	return videos, reached, nil
}

// withReached puts the column reached in front of a page: how many of the wanted
// positions, in the arrays from $n on, are reached by the rows that they are joined
// with. It is one statement, so it reads both in one snapshot. An empty page is a row
// without an item.
func withReached(page string, n int, joined string) string {
	return fmt.Sprintf(`
		SELECT reached, item.*
		  FROM (SELECT count(*) AS reached FROM unnest($%d::uuid[], $%d::bigint[], $%d::bigint[]) AS w (id, epoch, version)
		          JOIN %s AND (p.epoch, p.version) >= (w.epoch, w.version)) AS at
		  LEFT JOIN (%s) AS item ON true
		 ORDER BY item.video_id DESC`, n, n+1, n+2, joined, page)
}

// listed runs the statement of a page, withReached or without.
func listed[T any](ctx context.Context, db *pgxpool.Pool, scan pgx.RowToFunc[T], counted bool, sql string, args []any,
) (items []T, reached int, err error) {
	rows, _ := db.Query(ctx, sql, args...)
	if !counted {
		items, err = pgx.CollectRows(rows, scan)
		return items, 0, err
	}
	defer rows.Close()
	items = []T{} // an empty page is no null
	row := behindReached{CollectableRow: rows}
	for rows.Next() {
		if row.into == nil { // unknown before the first row
			row.into = make([]any, len(rows.FieldDescriptions())) // nil is passed over
			row.into[0] = &reached
		}
		if rows.RawValues()[1] == nil { // no key, no item
			return items, reached, rows.Scan(row.into...)
		}
		item, err := scan(row)
		if err != nil {
			return nil, 0, err
		}
		items = append(items, item)
	}
	return items, reached, rows.Err()
}

// behindReached is a row without its first column. Scan reads that column, too.
type behindReached struct {
	pgx.CollectableRow
	into []any
}

// FieldDescriptions is pgx's.
func (r behindReached) FieldDescriptions() []pgconn.FieldDescription {
	return r.CollectableRow.FieldDescriptions()[1:]
}

// Scan is pgx's.
func (r behindReached) Scan(into ...any) error {
	copy(r.into[1:], into)
	return r.CollectableRow.Scan(r.into...)
}

const engagementColumns = `user_id, video_id, liked, bookmarked, watched_seconds, version, epoch, created_at, updated_at, deleted_at`

func scanEngagement(row pgx.CollectableRow) (e Engagement, err error) {
	err = scanEngagementInto(row, &e)
	return e, err
}

// scanEngagementInto reads engagementColumns into e, and the columns after them into
// more.
func scanEngagementInto(row pgx.CollectableRow, e *Engagement, more ...any) error {
	return row.Scan(append([]any{&e.UserID, &e.VideoID, &e.Liked, &e.Bookmarked, &e.WatchedSeconds,
		&e.Version, &e.Epoch, &e.CreatedAt, &e.UpdatedAt, &e.DeletedAt}, more...)...)
}

// lockEngagements is the Lock of the engagements' rows.
func lockEngagements(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Engagement, error) {
	users, videos := pairs(ids)
	rows, _ := tx.Query(ctx, `
		SELECT `+engagementColumns+`, last_event_id FROM video_user_engagements_projection
		 WHERE (user_id, video_id) IN (SELECT u, v FROM unnest($1::uuid[], $2::uuid[]) AS named (u, v))
		 ORDER BY user_id, video_id FOR UPDATE`, users, videos)
	return replica.ByID(rows, func(row pgx.CollectableRow) (e Engagement, err error) {
		err = scanEngagementInto(row, &e, &e.LastEventID)
		return e, err
	}, func(e Engagement) string { return engagementID(e.UserID, e.VideoID) })
}

var engagementWriter = replica.NewWriter("video_user_engagements_projection", "user_id, video_id", "concat(user_id, ':', video_id)",
	engagementPosition,
	replica.Of("user_id", "uuid", func(e Engagement) pgtype.UUID { return bare(e.UserID) }),
	replica.Of("video_id", "uuid", func(e Engagement) pgtype.UUID { return bare(e.VideoID) }),
	replica.Of("liked", "bool", func(e Engagement) bool { return e.Liked }),
	replica.Of("bookmarked", "bool", func(e Engagement) bool { return e.Bookmarked }),
	replica.Of("watched_seconds", "bigint", func(e Engagement) int64 { return e.WatchedSeconds }),
	replica.Of("version", "bigint", func(e Engagement) int64 { return e.Version }),
	replica.Of("epoch", "bigint", func(e Engagement) int64 { return e.Epoch }),
	replica.Of("created_at", "timestamptz", func(e Engagement) *time.Time { return e.CreatedAt }),
	replica.Of("updated_at", "timestamptz", func(e Engagement) time.Time { return e.UpdatedAt }),
	replica.Of("deleted_at", "timestamptz", func(e Engagement) *time.Time { return e.DeletedAt }),
	replica.Of("last_event_id", "uuid", func(e Engagement) pgtype.UUID { return maybe(e.LastEventID) }))

// listEngagements returns up to limit of a user's engagements with videos below
// before, newest video first, and how many of the positions in wanted, all of this
// user, are reached in the same snapshot.
func listEngagements(ctx context.Context, db *pgxpool.Pool, user, before uuid.UUID, limit int, wanted []consistency.Position,
) (found []Engagement, reached int, err error) {
	sql := `SELECT ` + engagementColumns + ` FROM video_user_engagements_projection
		WHERE user_id = $1 AND video_id < $2 AND deleted_at IS NULL ORDER BY video_id DESC LIMIT $3`
	args := []any{user, before, limit}
	if len(wanted) > 0 {
		ids, epochs, versions := unzip(wanted)
		_, videos := pairs(ids)
		args = append(args, videos, epochs, versions)
		sql = withReached(sql, 4, "video_user_engagements_projection p ON p.user_id = $1 AND p.video_id = w.id")
	}
	found, reached, err = listed(ctx, db, scanEngagement, len(wanted) > 0, sql, args)
	if err != nil {
		return nil, 0, fmt.Errorf("list engagements: %w", err)
	}
	return found, reached, nil
}
