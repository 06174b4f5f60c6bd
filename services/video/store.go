package video

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/idempotency"
)

// columns are in the order of Video's fields.
const columns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, created_at, updated_at, deleted_at`

func insertVideo(b *pgx.Batch, v Video) {
	b.Queue(`
		INSERT INTO videos (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		v.ID, v.UploaderID, v.Title, v.Description, v.DurationSeconds, v.PublishedAt,
		v.Version, v.CreatedAt, v.UpdatedAt, v.DeletedAt)
}

// updateVideo expects the row's lock.
func updateVideo(b *pgx.Batch, v Video) {
	b.Queue(`
		UPDATE videos
		   SET title = $2, description = $3, duration_seconds = $4, published_at = $5,
		       version = $6, updated_at = $7, deleted_at = $8
		 WHERE video_id = $1`,
		v.ID, v.Title, v.Description, v.DurationSeconds, v.PublishedAt,
		v.Version, v.UpdatedAt, v.DeletedAt)
}

// lockVideo locks a video until tx ends, then looks for a stored answer to r:
// in this order, so that whoever waits for the lock sees what its holder has
// stored. Either is nil when there is none.
func lockVideo(ctx context.Context, tx pgx.Tx, id uuid.UUID, r idempotency.Request) (v *Video, first *idempotency.Stored, err error) {
	b := &pgx.Batch{}
	b.Queue(`SELECT `+columns+` FROM videos WHERE video_id = $1 FOR UPDATE`, id).Query(func(rows pgx.Rows) error {
		v, err = oneVideo(rows)
		return err
	})
	r.Recall(b, func(s idempotency.Stored) { first = &s })
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, nil, fmt.Errorf("lock: %w", err)
	}
	return v, first, nil
}

// selectVideo returns nil when there never was such a video.
func selectVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (*Video, error) {
	rows, err := db.Query(ctx, `SELECT `+columns+` FROM videos WHERE video_id = $1`, id)
	if err != nil {
		return nil, err
	}
	return oneVideo(rows)
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
	return pgx.CollectRows(rows, pgx.RowToStructByPos[Video])
}

// oneVideo is the only row, or nil when there is none.
func oneVideo(rows pgx.Rows) (*Video, error) {
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Video])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &v, err
}
