package video

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const columns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, created_at, updated_at, deleted_at, last_event_id`

func insertVideo(b *pgx.Batch, v Video) {
	b.Queue(`
		INSERT INTO videos (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		v.ID, v.UploaderID, v.Title, v.Description, v.DurationSeconds, v.PublishedAt,
		v.Version, v.CreatedAt, v.UpdatedAt, v.DeletedAt, v.LastEventID)
}

// updateVideo requires the row's lock.
func updateVideo(b *pgx.Batch, v Video) {
	b.Queue(`
		UPDATE videos
		   SET title = $2, description = $3, duration_seconds = $4, published_at = $5,
		       version = $6, updated_at = $7, deleted_at = $8, last_event_id = $9
		 WHERE video_id = $1`,
		v.ID, v.Title, v.Description, v.DurationSeconds, v.PublishedAt,
		v.Version, v.UpdatedAt, v.DeletedAt, v.LastEventID)
}

// lockVideo locks a video until its transaction ends. It finds nil if there is none.
func lockVideo(id uuid.UUID) func(*pgx.Batch, **Video) {
	return func(b *pgx.Batch, found **Video) {
		b.Queue(`SELECT `+columns+` FROM videos WHERE video_id = $1 FOR UPDATE`, id).Query(one(found))
	}
}

// selectVideo returns nil when there never was such a video. All that had committed
// by asOf is in the answer.
func selectVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (v *Video, asOf *time.Time, err error) {
	asOf, err = selectAsOf(ctx, db, one(&v), `SELECT `+columns+` FROM videos WHERE video_id = $1`, id)
	return v, asOf, err
}

// selectAsOf reads the time of the answer, and then rows, so that the time is no later
// than their snapshot. On a standby it is the time up to which the standby has
// replayed, if known.
func selectAsOf(ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any) (asOf *time.Time, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE clock_timestamp() END`).
		QueryRow(func(r pgx.Row) error { return r.Scan(&asOf) })
	b.Queue(query, args...).Query(read)
	err = db.SendBatch(ctx, b).Close()
	return asOf, err
}

// selectVideos leaves out videos that never existed. asOf is as in selectVideo.
func selectVideos(ctx context.Context, db *pgxpool.Pool, ids []string) (videos []Video, asOf *time.Time, err error) {
	asOf, err = selectAsOf(ctx, db, all(&videos), `SELECT `+columns+` FROM videos WHERE video_id = ANY ($1::uuid[])`, ids)
	return videos, asOf, err
}

// selectPage returns up to limit videos with ids below before, newest first. A
// statement for each filter lets each have its own plan.
func selectPage(ctx context.Context, db *pgxpool.Pool, f Filter, before uuid.UUID, limit int) ([]Video, error) {
	query, args := `SELECT `+columns+` FROM videos WHERE video_id < $1`, []any{before, limit}
	if !f.IncludeDeleted {
		query += ` AND deleted_at IS NULL`
	}
	if f.UploaderID != uuid.Nil {
		query, args = query+` AND uploader_id = $3`, append(args, f.UploaderID)
	}
	rows, err := db.Query(ctx, query+` ORDER BY video_id DESC LIMIT $2`, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Video])
}

const engagementColumns = `user_id, video_id, liked, bookmarked, watched_seconds, version, created_at, updated_at, deleted_at,
	last_event_id`

// lockEngagement locks an engagement until its transaction ends, also if it does not
// exist: the lock is on its name, so that two first writers do not collide at the
// primary key. If there is none, the version is 0. The video is read after the lock,
// and not locked: a like must not wait for the video's writers, nor they for a thousand
// likes.
func lockEngagement(user, video uuid.UUID, of **Video) func(*pgx.Batch, **Engagement) {
	return func(b *pgx.Batch, found **Engagement) {
		*found = &Engagement{UserID: user, VideoID: video}
		b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, engagementID(user, video))
		b.Queue(`SELECT `+engagementColumns+` FROM engagements WHERE user_id = $1 AND video_id = $2`, user, video).Query(one(found))
		if of != nil {
			b.Queue(`SELECT `+columns+` FROM videos WHERE video_id = $1`, video).Query(one(of))
		}
	}
}

// writeEngagement requires the lock.
func writeEngagement(b *pgx.Batch, e Engagement) {
	b.Queue(`
		INSERT INTO engagements (`+engagementColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
		ON CONFLICT (user_id, video_id) DO UPDATE
		   SET liked = excluded.liked, bookmarked = excluded.bookmarked, watched_seconds = excluded.watched_seconds,
		       version = excluded.version, created_at = excluded.created_at, updated_at = excluded.updated_at,
		       deleted_at = excluded.deleted_at, last_event_id = excluded.last_event_id`,
		e.UserID, e.VideoID, e.Liked, e.Bookmarked, e.WatchedSeconds, e.Version, e.CreatedAt, e.UpdatedAt, e.DeletedAt,
		e.LastEventID)
}

// selectEngagement returns nil when there never was such an engagement. asOf is as in
// selectVideo.
func selectEngagement(ctx context.Context, db *pgxpool.Pool, user, video uuid.UUID) (e *Engagement, asOf *time.Time, err error) {
	asOf, err = selectAsOf(ctx, db, one(&e), `SELECT `+engagementColumns+` FROM engagements WHERE user_id = $1 AND video_id = $2`, user, video)
	return e, asOf, err
}

// selectEngagementsWith leaves out engagements that never existed. asOf is as in
// selectVideo.
func selectEngagementsWith(ctx context.Context, db *pgxpool.Pool, user uuid.UUID, videos []string,
) (found []Engagement, asOf *time.Time, err error) {
	asOf, err = selectAsOf(ctx, db, all(&found),
		`SELECT `+engagementColumns+` FROM engagements WHERE user_id = $1 AND video_id = ANY ($2::uuid[])`, user, videos)
	return found, asOf, err
}

// selectEngagements returns up to limit engagements with keys below before, the highest
// first.
func selectEngagements(ctx context.Context, db *pgxpool.Pool, f EngagementFilter, before [2]uuid.UUID, limit int) ([]Engagement, error) {
	query := `SELECT ` + engagementColumns + ` FROM engagements WHERE (user_id, video_id) < ($1, $2)`
	args := []any{before[0], before[1], limit}
	if !f.IncludeDeleted {
		query += ` AND deleted_at IS NULL`
	}
	if f.UserID != uuid.Nil {
		query, args = query+` AND user_id = $4`, append(args, f.UserID)
	}
	rows, _ := db.Query(ctx, query+` ORDER BY user_id DESC, video_id DESC LIMIT $3`, args...)
	return pgx.CollectRows(rows, pgx.RowToStructByName[Engagement])
}

// one reads the only row into found, and leaves found unchanged if there is none.
func one[T any](found **T) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		row, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[T])
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		*found = &row
		return nil
	}
}

// all collects rows into found.
func all[T any](found *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = pgx.CollectRows(rows, pgx.RowToStructByName[T])
		return err
	}
}
