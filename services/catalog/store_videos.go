package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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

const videoColumns = `video_id, uploader_id, title, description, duration_seconds, published_at, ` + versionColumns

const videoTable = "video_projection"

var videoKey = []string{"video_id"}

// compared returns the table of videos, for a comparison with the owner's table.
func (a videos) compared() *reconcile.Table {
	return reconcile.NewTable(a.db, a.sql().table, videoKey, videoColumns, reconcile.ColumnEpoch)
}

// readVideo reads a video. It returns the zero Video if there is neither a video nor a tombstone.
func readVideo(ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, id uuid.UUID) (Video, error) {
	return readCounted(ctx, db, scope, `SELECT `+videoColumns+` FROM video_projection WHERE video_id = $1`, id)
}

func readCounted(ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, sql string, id uuid.UUID) (v Video, err error) {
	err = scope.Read(ctx, db, func(rows pgx.Rows) (err error) {
		v, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByNameLax[Video])
		return err
	}, withCounters(sql), id)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Video{}, nil
	case err != nil:
		return Video{}, fmt.Errorf("read video: %w", err)
	}
	return v, nil
}

// positions reads the positions that the projection has of the wanted videos in scope.
func (a videos) positions(ctx context.Context, scope tenant.Scope, wanted []consistency.Position) ([]consistency.Position, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	return readPositions(ctx, a.db, scope, a.sql().positions, idsOf(wanted), videoType)
}

// Lock locks the rows with these ids.
func (a videos) Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]Video, error) {
	return lockRows(ctx, tx, Video.id, a.sql().lock, ids)
}

var servedVideos, shadowVideos = videoStatements(videoTable), videoStatements(rebuild.Shadow(videoTable))

func videoStatements(table string) *tableSQL {
	return &tableSQL{
		table: table,
		positions: `
			SELECT $2::text AS aggregate_type, video_id::text AS aggregate_id, epoch, version
			  FROM ` + table + ` WHERE video_id = ANY($1::uuid[])`,
		lock: `
			SELECT ` + videoColumns + `, ` + lockedColumns + ` FROM ` + table + `
			 WHERE video_id = ANY ($1::uuid[]) ORDER BY video_id FOR UPDATE`,
		upsert: upsertSQL(table, "video_id", videoColumns, "uuid, uuid, text, text, bigint, timestamptz"),
		incomplete: `
			SELECT video_id::text FROM ` + table + `
			 WHERE incomplete AND revision < $1 AND video_id > $2::uuid ORDER BY ` + table + `.video_id LIMIT $3`,
		countIncomplete: countIncompleteSQL(table, "video_id"),
	}
}

func (a videos) sql() *tableSQL {
	if a.shadow {
		return shadowVideos
	}
	return servedVideos
}

// Upsert writes all steps in one statement.
func (a videos) Upsert(ctx context.Context, tx pgx.Tx, steps []inbox.Step[Video]) ([]string, error) {
	return upsert(ctx, tx, a.sql().upsert, steps,
		column(steps, func(v Video) pgtype.UUID { return pgID(v.ID) }),
		column(steps, func(v Video) pgtype.UUID { // NULL on tombstones
			return pgtype.UUID{Bytes: v.UploaderID, Valid: v.DeletedAt == nil}
		}),
		column(steps, func(v Video) string { return v.Title }),
		column(steps, func(v Video) string { return v.Description }),
		column(steps, func(v Video) int64 { return v.DurationSeconds }),
		column(steps, func(v Video) *time.Time { return v.PublishedAt }))
}

// listVideos returns q's page and, if there is one, the next video behind it. The videos are in descending
// order of their ids. That is newest first, because ids are UUIDs of version 7. reached counts the positions
// in wanted that the projection has reached in the snapshot of the page.
//
// A title search runs in the scope of all tenants, and has a condition on the tenant instead. The
// reason is that ILIKE is not leakproof. So under row-level security Postgres could not use the
// trigram index for ILIKE.
func listVideos(ctx context.Context, db *pgxpool.Pool, q Query, before uuid.UUID, wanted []consistency.Position,
) (videos []Video, reached int, err error) {
	read, joined := scopeOf(q.Caller).ReadPage, "video_projection p ON p.video_id = w.id"
	from := `FROM video_projection WHERE deleted_at IS NULL AND video_id < $2`
	args := []any{q.PageSize + 1, before}
	// The statement has only the conditions that the query has, so that each combination is planned
	// for its index.
	and := func(condition string, arg any) {
		args = append(args, arg)
		from += fmt.Sprintf(" AND %s $%d", condition, len(args))
	}
	if q.UploaderID != "" {
		and("uploader_id =", q.UploaderID)
	}
	page := `SELECT ` + videoColumns + ` ` + from
	if q.Title != "" {
		read = tenant.All().ReadReplanned
		and("tenant_id =", q.Caller.Tenant)
		joined += fmt.Sprintf(" AND p.tenant_id = $%d", len(args))
		args = append(args, "%"+strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(q.Title)+"%")
		page = searchSQL(from, fmt.Sprintf("%s ILIKE $%d", searchedColumn(q.Title), len(args)))
	}
	page += ` ORDER BY video_id DESC LIMIT $1`
	page = withCounters(page) + ` ORDER BY video_id DESC`
	videos, reached, err = readPage[Video](ctx, db, read, "video_id", page, args, wanted, idsOf(wanted), joined)
	if err != nil {
		return nil, 0, fmt.Errorf("list videos: %w", err)
	}
	return videos, reached, nil
}

// searchedFirst is how many videos a search reads in the order of the page before it uses the trigram
// index. That takes the database some 15 ms. If one title in a hundred matches, the page is full by then.
const searchedFirst = 5000

// searchSQL returns the statement that selects those videos of a list whose titles match. The best plan
// depends on how many titles match. For a common text, the first videos of the list soon fill the page, and
// the trigram index would find a great part of all titles, of all tenants. For a rare text, only the trigram
// index is fast. The planner cannot know which case it is, because under row-level security it has no
// statistics for ILIKE.
//
// So the statement reads the first searchedFirst videos of the list, and fills the page from them. If they
// do not fill the page, and the list is longer, it selects from the whole list without an order and without
// a limit. Then no plan can rely on a page that is soon full. The worst case is a text that many titles
// have, but few of the first titles. With a million matching titles, a search takes one second of its ten.
// In the statement, page has no ORDER BY, because it keeps the order of first. So Postgres reads no more of
// first than it needs.
func searchSQL(from, matches string) string {
	return fmt.Sprintf(`
		WITH first AS MATERIALIZED (
		  SELECT ctid AS place, title %[2]s ORDER BY video_id DESC LIMIT %[4]d
		), page AS MATERIALIZED (
		  SELECT place FROM first WHERE %[3]s LIMIT $1
		), rest AS MATERIALIZED (
		  SELECT ctid AS place, video_id %[2]s AND %[3]s
		     AND (SELECT count(*) FROM page) < $1 AND (SELECT count(*) FROM first) = %[4]d
		)
		SELECT %[1]s FROM video_projection WHERE ctid = ANY (ARRAY(
		  SELECT place FROM page UNION ALL (SELECT place FROM rest ORDER BY video_id DESC LIMIT $1)))`,
		videoColumns, from, matches, searchedFirst)
}

// searchedColumn returns the column of titles, as an expression that the trigram index does not have if
// text has no three letters or digits in a row. For such a text Postgres would read the whole index,
// and then all titles. Postgres takes the vowel signs of many scripts for letters, too.
func searchedColumn(text string) string {
	isSeparator := func(c rune) bool { return !unicode.In(c, unicode.Letter, unicode.Digit, unicode.Other_Alphabetic) }
	for word := range strings.FieldsFuncSeq(text, isSeparator) {
		if utf8.RuneCountInString(word) >= 3 {
			return "title"
		}
	}
	return "(title || '')"
}

// Incomplete reads a page of the partial index of incomplete rows. The statement orders the rows by the column of the table.
// Without the table's name it would order them by their texts, and read all incomplete rows for each page.
func (a videos) Incomplete(ctx context.Context, after string, limit int) ([]string, error) {
	return readIDs(ctx, a.db, a.sql().incomplete,
		videoRevision, cmp.Or(after, uuid.Nil.String()), limit)
}

// CountIncomplete counts the incomplete rows, up to limit, in the partial index.
func (a videos) CountIncomplete(ctx context.Context, limit int) (n int64, err error) {
	err = a.db.QueryRow(ctx, a.sql().countIncomplete, limit).Scan(&n)
	return n, err
}
