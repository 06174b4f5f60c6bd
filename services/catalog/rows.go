package catalog

import (
	"context"
	"fmt"
	"regexp"
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

// byID collects locked rows.
func byID[S any](rows pgx.Rows, id func(row S) string) (map[string]S, error) {
	found, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[S])
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

func idsOf(positions []consistency.Position) (ids []string) {
	for _, p := range positions {
		ids = append(ids, p.AggregateID)
	}
	return ids
}

// excluded assigns each of the columns its value in the row that is in conflict. Those of
// the key keep theirs.
func excluded(columns string) string {
	return columnName.ReplaceAllString(columns, "$0 = excluded.$0")
}

var columnName = regexp.MustCompile(`\w+`)

// readPage runs the statement page. reached counts the wanted positions that are reached
// by the rows that they are joined with; their ids there are in ids. One statement reads
// both, so it reads them in one snapshot. An empty page is a row without an item.
func readPage[T any](ctx context.Context, db *pgxpool.Pool, page string, args []any, wanted []consistency.Position,
	ids []string, joined string,
) (items []T, reached int, err error) {
	if len(wanted) == 0 {
		rows, _ := db.Query(ctx, page, args...)
		items, err = pgx.CollectRows(rows, pgx.RowToStructByNameLax[T])
		return items, 0, err
	}
	var epochs, versions []int64
	for _, p := range wanted {
		epochs, versions = append(epochs, p.Epoch), append(versions, p.Version)
	}
	rows, _ := db.Query(ctx, withReached(page, len(args)+1, joined), append(args, ids, epochs, versions)...)
	defer rows.Close()
	items = []T{} // an empty page is no null
	for rows.Next() {
		row := counted{rows, &reached}
		if rows.RawValues()[0] == nil { // no key, no item
			return items, reached, row.Scan(make([]any, len(row.FieldDescriptions()))...)
		}
		item, err := pgx.RowToStructByNameLax[T](row)
		if err != nil {
			return nil, 0, err
		}
		items = append(items, item)
	}
	return items, reached, rows.Err()
}

// counted is a row without its last column. Scan reads that column into reached.
type counted struct {
	pgx.CollectableRow
	reached *int
}

// FieldDescriptions is pgx's.
func (r counted) FieldDescriptions() []pgconn.FieldDescription {
	all := r.CollectableRow.FieldDescriptions()
	return all[:len(all)-1]
}

// Scan is pgx's.
func (r counted) Scan(into ...any) error { return r.CollectableRow.Scan(append(into, r.reached)...) }
