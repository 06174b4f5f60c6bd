package catalog

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/rest"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/tenant"
	"example.com/lockstep/pkg/eventing/txn"
)

// This file has the code that the statements of all projections share. store_videos.go, and each
// file like it, has the statements of one type of aggregate.

// tableSQL has the statements that move the rows of a table. The table is the served one, or its
// shadow in a rebuild. Reads for users are always of the served table.
type tableSQL struct{ table, positions, lock, upsert, incomplete, countIncomplete string }

func readPositions(
	ctx context.Context, db *pgxpool.Pool, scope tenant.Scope, sql string, args ...any,
) (found []consistency.Position, err error) {
	err = scope.Read(ctx, db, func(rows pgx.Rows) (err error) {
		found, err = pgx.CollectRows(rows, pgx.RowToStructByName[consistency.Position])
		return err
	}, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

// lockRows runs a statement that locks rows, and returns them by their ids. Postgres keeps the
// plans of this statement and of the upsert after it, because planning them was a third of a
// batch's cost.
func lockRows[S any](ctx context.Context, tx pgx.Tx, id func(row S) string, sql string, args ...any) (map[string]S, error) {
	found := map[string]S{}
	b := &pgx.Batch{}
	b.Queue(txn.KeepPlans)
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		locked, err := pgx.CollectRows(rows, pgx.RowToStructByNameLax[S])
		for _, row := range locked {
			found[id(row)] = row
		}
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock rows: %w", err)
	}
	return found, nil
}

//go:embed upsert.sql
var upsertTemplate string

// upsertSQL returns the statement that upsert runs. columns are the columns for readers, which end in
// versionColumns. types are the types of those before versionColumns. If a row was absent, the
// statement inserts it, unless another transaction has inserted it since. If a row was there, it is
// locked, so an insert of it certainly conflicts. Then the conflict clause updates the row, and
// Postgres finds the row by its key, whatever the plan is.
func upsertSQL(table, key, columns, types string) string {
	columns += ", " + lockedColumns
	var arrays []string
	for i, kind := range strings.Split(types+", "+versionTypes+", bool", ", ") {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, kind))
	}
	return strings.NewReplacer("{table}", table, "{key}", key, "{columns}", columns,
		"{arrays}", strings.Join(arrays, ", "), "{assignments}", columnName.ReplaceAllString(columns, "$0 = excluded.$0")).Replace(upsertTemplate)
}

var columnName = regexp.MustCompile(`\w+`)

// countIncompleteSQL has the order of the partial index. Without statistics Postgres expects that every other row is
// incomplete, and without an order it would read the whole table for the first of them.
func countIncompleteSQL(table, key string) string {
	return `SELECT count(*) FROM (SELECT FROM ` + table + ` WHERE incomplete ORDER BY ` + key + ` LIMIT $1) AS rows_found`
}

// upsert runs sql, which is a statement of upsertSQL, with the columns of the rows after steps.
// columns has the columns before versionColumns. It returns the ids of the written rows.
func upsert[S interface{ versioned() Versioned }](
	ctx context.Context, tx pgx.Tx, sql string, steps []inbox.Step[S], columns ...any,
) ([]string, error) {
	after, present := make([]Versioned, len(steps)), make([]bool, len(steps))
	for i, s := range steps {
		after[i], present[i] = s.New.versioned(), s.Old.versioned().Version > 0
	}
	rows, _ := tx.Query(ctx, sql, append(columns,
		each(after, func(r Versioned) int64 { return r.Version }),
		each(after, func(r Versioned) int64 { return r.Epoch }),
		each(after, func(r Versioned) *time.Time { return r.CreatedAt }),
		each(after, func(r Versioned) time.Time { return r.UpdatedAt }),
		each(after, func(r Versioned) *time.Time { return r.DeletedAt }),
		each(after, func(r Versioned) string { return r.TenantID }),
		each(after, func(r Versioned) pgtype.UUID { return pgID(r.LastEventID.UUID) }),
		each(after, func(r Versioned) int64 { return r.Revision }),
		each(after, func(r Versioned) bool { return r.Incomplete }), present)...)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("write rows: %w", err)
	}
	return written, nil
}

type readRows func(ctx context.Context, db *pgxpool.Pool, read func(pgx.Rows) error, query string, args ...any) error

// readPage runs the statement page and returns its rows, in the order of the column by, highest
// first. reached is how many of the wanted positions the projection has reached. joined names the
// table that has the positions, and the join condition. ids are the keys of the wanted positions in
// that table. One statement reads the page and the positions, so that both are of one snapshot. If
// the page is empty, this statement returns one row without an item. read is a method of
// tenant.Scope.
func readPage[T any](ctx context.Context, db *pgxpool.Pool, read readRows, by, page string, args []any,
	wanted []consistency.Position, ids []string, joined string,
) (items []T, reached int, err error) {
	if len(wanted) == 0 {
		err = read(ctx, db, func(rows pgx.Rows) (err error) {
			items, err = collectPage[T](rows, rows)
			return err
		}, page, args...)
		return items, 0, err
	}
	var epochs, versions []int64
	for _, p := range wanted {
		epochs, versions = append(epochs, p.Epoch), append(versions, p.Version)
	}
	n := len(args)
	err = read(ctx, db, func(rows pgx.Rows) (err error) {
		items, err = collectPage[T](rows, counted{rows, &reached})
		return err
	}, fmt.Sprintf(`
		SELECT item.*, reached
		  FROM (SELECT count(*) AS reached FROM unnest($%d::uuid[], $%d::bigint[], $%d::bigint[]) AS w (id, epoch, version)
		          JOIN %s AND (p.epoch, p.version) >= (w.epoch, w.version)) AS at
		  LEFT JOIN (%s) AS item ON true
		 ORDER BY item.%s DESC`, n+1, n+2, n+3, joined, page, by), append(args, ids, epochs, versions)...)
	return items, reached, err
}

// collectPage reads no more rows than an answer can have. row is the current row of rows.
func collectPage[T any](rows pgx.Rows, row pgx.CollectableRow) (items []T, err error) {
	defer rows.Close()
	items = []T{} // so that an empty page is not null in JSON
	var space rest.PageSpace
	for more := true; more && rows.Next(); {
		if rows.RawValues()[0] == nil { // a row without a key is a row without an item
			return items, row.Scan(make([]any, len(row.FieldDescriptions()))...)
		}
		item, err := pgx.RowToStructByNameLax[T](row)
		if err != nil {
			return nil, err
		}
		text := 0
		if long, ok := any(item).(interface{ text() int }); ok {
			text = long.text()
		}
		items, more = append(items, item), space.Take(text)
	}
	rows.Close() // the rest of the rows is read and dropped
	return items, rows.Err()
}

// column returns one column of the rows after steps, as an array for a statement. For a UUID, C
// must be pgtype.UUID. For an array of any other UUID type, pgx has to ask the server about the
// array's type, and behind a transaction pooler pgx does not ask.
func column[S, C any](steps []inbox.Step[S], of func(row S) C) []C {
	return each(steps, func(s inbox.Step[S]) C { return of(s.New) })
}

func each[S, C any](rows []S, of func(S) C) []C {
	all := make([]C, len(rows))
	for i, row := range rows {
		all[i] = of(row)
	}
	return all
}

// pgID returns id for a statement. The zero id is NULL.
func pgID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: id != uuid.Nil} }

func idsOf(positions []consistency.Position) (ids []string) {
	for _, p := range positions {
		ids = append(ids, p.AggregateID)
	}
	return ids
}

// counted is a row without its last column. Scan reads that column into reached.
type counted struct {
	pgx.CollectableRow
	reached *int
}

// FieldDescriptions leaves out the last column.
func (r counted) FieldDescriptions() []pgconn.FieldDescription {
	all := r.CollectableRow.FieldDescriptions()
	return all[:len(all)-1]
}

// Scan reads the last column into r.reached, and the other columns into the given values.
func (r counted) Scan(into ...any) error { return r.CollectableRow.Scan(append(into, r.reached)...) }

func readIDs(ctx context.Context, db *pgxpool.Pool, sql string, args ...any) ([]string, error) {
	rows, _ := db.Query(ctx, sql, args...)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read ids: %w", err)
	}
	return ids, nil
}
