package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
)

const columns = `video_id, uploader_id, title, description, duration_seconds, published_at,
	version, epoch, created_at, updated_at, deleted_at`

func scanVideo(row pgx.CollectableRow) (v Video, err error) {
	var uploader uuid.NullUUID // NULL on tombstones
	err = row.Scan(&v.ID, &uploader, &v.Title, &v.Description, &v.DurationSeconds, &v.PublishedAt,
		&v.Version, &v.Epoch, &v.CreatedAt, &v.UpdatedAt, &v.DeletedAt)
	v.UploaderID = uploader.UUID
	return v, err
}

// readVideo returns the zero Video where there is neither video nor tombstone.
func readVideo(ctx context.Context, db *pgxpool.Pool, id uuid.UUID) (Video, error) {
	rows, _ := db.Query(ctx, `SELECT `+columns+` FROM video_projection WHERE video_id = $1`, id)
	return oneVideo(rows, "read video")
}

// readPositions returns where the projection is with those videos that it has.
func readPositions(ctx context.Context, db *pgxpool.Pool, videos []consistency.Position) ([]consistency.Position, error) {
	ids, _, _ := unzip(videos)
	rows, _ := db.Query(ctx, `
		SELECT $2::text, video_id::text, epoch, version
		  FROM video_projection WHERE video_id = ANY($1::uuid[])`, ids, aggregateType)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[consistency.Position])
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

func unzip(videos []consistency.Position) (ids []string, epochs, versions []int64) {
	for _, p := range videos {
		ids, epochs, versions = append(ids, p.AggregateID), append(epochs, p.Epoch), append(versions, p.Version)
	}
	return ids, epochs, versions
}

// lockVideo is readVideo that locks the row, where there is one, until tx ends.
func lockVideo(ctx context.Context, tx pgx.Tx, id uuid.UUID) (Video, error) {
	rows, _ := tx.Query(ctx, `SELECT `+columns+` FROM video_projection WHERE video_id = $1 FOR UPDATE`, id)
	return oneVideo(rows, "lock video")
}

func oneVideo(rows pgx.Rows, what string) (Video, error) {
	v, err := pgx.CollectExactlyOneRow(rows, scanVideo)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Video{}, nil
	case err != nil:
		return Video{}, fmt.Errorf("%s: %w", what, err)
	}
	return v, nil
}

// writeVideo puts next in place of stored, which is zero where there was no row.
// It reports false, and has written nothing, if something else is there by now.
func writeVideo(ctx context.Context, tx pgx.Tx, stored, next Video) (bool, error) {
	tag, err := tx.Exec(ctx, `
		INSERT INTO video_projection AS p (`+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
		ON CONFLICT (video_id) DO UPDATE
		   SET uploader_id = excluded.uploader_id, title = excluded.title, description = excluded.description,
		       duration_seconds = excluded.duration_seconds, published_at = excluded.published_at,
		       version = excluded.version, epoch = excluded.epoch, created_at = excluded.created_at,
		       updated_at = excluded.updated_at, deleted_at = excluded.deleted_at, applied_at = clock_timestamp()
		 WHERE p.version = $12 AND p.epoch = $13`,
		next.ID, uuid.NullUUID{UUID: next.UploaderID, Valid: next.DeletedAt == nil},
		next.Title, next.Description, next.DurationSeconds, next.PublishedAt,
		next.Version, next.Epoch, next.CreatedAt, next.UpdatedAt, next.DeletedAt,
		stored.Version, stored.Epoch)
	if err != nil {
		return false, fmt.Errorf("write video: %w", err)
	}
	return tag.RowsAffected() == 1, nil
}

// listVideos returns q's page and, where there is one, the video behind it:
// newest first, since ids are UUIDs of version 7. A title search has no index
// and reads until the page is full. Of the positions in wanted, as many as
// reached has are reached in the page's own snapshot.
func listVideos(ctx context.Context, db *pgxpool.Pool, q Query, before uuid.UUID, wanted []consistency.Position,
) (videos []Video, reached int, err error) {
	sql := `SELECT ` + columns + ` FROM video_projection WHERE deleted_at IS NULL AND video_id < $2`
	args := []any{q.PageSize + 1, before}
	// Only what applies, so that each combination is planned for its index.
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
		sql = withReached(sql, n+1)
	}
	rows, _ := db.Query(ctx, sql, args...)
	videos, err = pgx.CollectRows(rows, scanVideo)
	if err != nil {
		return nil, 0, fmt.Errorf("list videos: %w", err)
	}
	if len(wanted) > 0 {
		last := len(videos) - 1
		videos, reached = videos[:last], int(videos[last].Version)
	}
	return videos, reached, nil
}

// withReached adds a last row to a page of videos, which is none: its version
// counts the wanted positions, in the arrays from $n on, that are reached.
func withReached(page string, n int) string {
	return fmt.Sprintf(`(%s) UNION ALL
		SELECT '00000000-0000-0000-0000-000000000000', NULL, '', '', 0, NULL,
		       (SELECT count(*) FROM unnest($%d::uuid[], $%d::bigint[], $%d::bigint[]) AS w (id, epoch, version)
		          JOIN video_projection p ON p.video_id = w.id AND (p.epoch, p.version) >= (w.epoch, w.version)),
		       0, NULL, 'epoch', NULL
		ORDER BY video_id DESC`, page, n, n+1, n+2)
}
