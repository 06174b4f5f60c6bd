package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
)

// This file has the parameters and results of the statements in store.go.

func scanVideo(row pgx.CollectableRow) (v Video, err error) {
	err = scanVideoInto(row, &v)
	return v, err
}

// scanVideoInto reads videoColumns into v, and the columns after them into more.
func scanVideoInto(row pgx.CollectableRow, v *Video, more ...any) error {
	var uploader uuid.NullUUID // NULL on tombstones
	err := row.Scan(append([]any{&v.ID, &uploader, &v.Title, &v.Description, &v.DurationSeconds, &v.PublishedAt,
		&v.Version, &v.Epoch, &v.CreatedAt, &v.UpdatedAt, &v.DeletedAt}, more...)...)
	v.UploaderID = uploader.UUID
	return err
}

// scanVideoWithEvent also reads last_event_id.
func scanVideoWithEvent(row pgx.CollectableRow) (v Video, err error) {
	err = scanVideoInto(row, &v, &v.LastEventID)
	return v, err
}

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

// scanEngagementWithEvent also reads last_event_id.
func scanEngagementWithEvent(row pgx.CollectableRow) (e Engagement, err error) {
	err = scanEngagementInto(row, &e, &e.LastEventID)
	return e, err
}

// byID collects locked rows.
func byID[S any](rows pgx.Rows, scan pgx.RowToFunc[S], id func(row S) string) (map[string]S, error) {
	found, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	byID := make(map[string]S, len(found))
	for _, row := range found {
		byID[id(row)] = row
	}
	return byID, nil
}

// writtenIDs collects the ids of written rows.
func writtenIDs(rows pgx.Rows) ([]string, error) {
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("write rows: %w", err)
	}
	return written, nil
}

// column is one column of the rows after steps. For a UUID, C is pgtype.UUID: for an
// array of another UUID type pgx would ask the server, and it does not do that behind a
// transaction pooler.
func column[S, C any](steps []inbox.Step[S], of func(row S) C) []C {
	all := make([]C, len(steps))
	for i, s := range steps {
		all[i] = of(s.New)
	}
	return all
}

// exist says which of the rows before steps exist.
func exist[S any](steps []inbox.Step[S], rows inbox.Rows[S]) []bool {
	all := make([]bool, len(steps))
	for i, s := range steps {
		all[i] = rows.Position(s.Old).Version > 0
	}
	return all
}

func pgID(id uuid.NullUUID) pgtype.UUID { return pgtype.UUID{Bytes: id.UUID, Valid: id.Valid} }

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
