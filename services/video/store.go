package video

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/services/video/aggregate"
)

// columns, their placeholders and the arguments of both are in one order.
const (
	columns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, created_at, updated_at, deleted_at, last_event_id`
	placeholders = `$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11`
)

func (v Video) arguments() []any {
	return []any{
		v.ID, v.UploaderID, v.Title, v.Description, v.DurationSeconds, v.PublishedAt,
		v.Version, v.CreatedAt, v.UpdatedAt, v.DeletedAt, v.LastEventID,
	}
}

func insertVideo(tx *aggregate.Tx, v Video) {
	tx.Queue(`INSERT INTO videos (`+columns+`) VALUES (`+placeholders+`)`, v.arguments()...)
}

// updateVideo requires the row's lock. It names all columns, so that there is one list of
// them. A column that keeps its value costs no index entry: the update stays heap-only.
func updateVideo(tx *aggregate.Tx, v Video) {
	tx.Queue(`UPDATE videos SET (`+columns+`) = (`+placeholders+`) WHERE video_id = $1`, v.arguments()...)
}

// lockVideo locks a video until its transaction ends, and reads it. Without such a video
// it returns the zero Video.
func lockVideo(ctx context.Context, tx *aggregate.Tx, id uuid.UUID) (v Video, err error) {
	tx.Queue(`SELECT `+columns+`, `+aggregate.Epoch+` FROM videos WHERE video_id = $1 FOR UPDATE`, id).Query(aggregate.One(&v))
	err = tx.Lock(ctx)
	return v, err
}

// selectVideo returns the zero Video when there never was such a video. asOf is as in
// aggregate.SelectAsOf.
func selectVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (v Video, asOf *time.Time, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, aggregate.One(&v), `SELECT `+columns+`, `+aggregate.Epoch+` FROM videos WHERE video_id = $1`, id)
	return v, asOf, err
}

// selectVideos leaves out videos that never existed. asOf is as in selectVideo.
func selectVideos(ctx context.Context, db *pgxpool.Pool, ids []string) (videos []Video, asOf *time.Time, err error) {
	asOf, err = aggregate.SelectAsOf(ctx, db, aggregate.All(&videos),
		`SELECT `+columns+`, `+aggregate.Epoch+` FROM videos WHERE video_id = ANY ($1::uuid[])`, ids)
	return videos, asOf, err
}

// selectPage returns up to limit videos with ids below before, newest first. A
// statement for each filter lets each have its own plan.
func selectPage(ctx context.Context, db *pgxpool.Pool, f Filter, before uuid.UUID, limit int) ([]Video, error) {
	query, args := `SELECT `+columns+`, `+aggregate.Epoch+` FROM videos WHERE video_id < $1`, []any{before, limit}
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
