package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
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

// lockVideos is the Lock of the projection's rows.
func lockVideos(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Video, error) {
	rows, _ := tx.Query(ctx, `SELECT `+columns+` FROM video_projection WHERE video_id = ANY ($1::uuid[]) ORDER BY video_id FOR UPDATE`, ids)
	videos, err := pgx.CollectRows(rows, scanVideo)
	if err != nil {
		return nil, fmt.Errorf("lock videos: %w", err)
	}
	byID := make(map[string]Video, len(videos))
	for _, v := range videos {
		byID[v.ID.String()] = v
	}
	return byID, nil
}

// writeVideos is the Write of the projection's rows. An absent row is inserted if
// it still is absent; one that is there is locked, so that its "conflict" is
// certain, and finds it by its key whatever the planner thinks.
func writeVideos(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Video]) ([]string, error) {
	var b batch
	for _, s := range steps {
		b.add(s.New, s.Old.Version > 0)
	}
	rows, _ := tx.Query(ctx, `
		WITH step AS MATERIALIZED (
		  SELECT `+columns+`, known
		    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::timestamptz[], $7::bigint[],
		         $8::bigint[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::bool[]) AS s (`+columns+`, known)
		), fresh AS (
		  INSERT INTO video_projection (`+columns+`)
		  SELECT `+columns+` FROM step WHERE NOT known ORDER BY video_id
		  ON CONFLICT (video_id) DO NOTHING RETURNING video_id
		), moved AS (
		  INSERT INTO video_projection (`+columns+`)
		  SELECT `+columns+` FROM step WHERE known ORDER BY video_id
		  ON CONFLICT (video_id) DO UPDATE
		     SET uploader_id = excluded.uploader_id, title = excluded.title, description = excluded.description,
		         duration_seconds = excluded.duration_seconds, published_at = excluded.published_at,
		         version = excluded.version, epoch = excluded.epoch, created_at = excluded.created_at,
		         updated_at = excluded.updated_at, deleted_at = excluded.deleted_at, applied_at = clock_timestamp()
		  RETURNING video_id
		)
		SELECT video_id::text FROM fresh UNION ALL SELECT video_id::text FROM moved`,
		b.ids, b.uploaders, b.titles, b.descriptions, b.durations, b.published, b.versions,
		b.epochs, b.created, b.updated, b.deleted, b.known)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("write videos: %w", err)
	}
	return written, nil
}

// batch is videos by column. pgx takes the long way round with []uuid.UUID.
type batch struct {
	ids                         [][16]byte
	uploaders                   []*[16]byte // NULL on tombstones
	titles, descriptions        []string
	durations, versions, epochs []int64
	published, created, deleted []*time.Time
	updated                     []time.Time
	known                       []bool
}

func (b *batch) add(v Video, known bool) {
	var uploader *[16]byte
	if v.DeletedAt == nil {
		uploader = (*[16]byte)(&v.UploaderID)
	}
	b.ids, b.uploaders = append(b.ids, v.ID), append(b.uploaders, uploader)
	b.titles, b.descriptions = append(b.titles, v.Title), append(b.descriptions, v.Description)
	b.durations, b.published = append(b.durations, v.DurationSeconds), append(b.published, v.PublishedAt)
	b.versions, b.epochs = append(b.versions, v.Version), append(b.epochs, v.Epoch)
	b.created, b.updated, b.deleted = append(b.created, v.CreatedAt), append(b.updated, v.UpdatedAt), append(b.deleted, v.DeletedAt)
	b.known = append(b.known, known)
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
