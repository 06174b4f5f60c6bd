package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing/inbox"
)

// Column is one column of a copy's table, with its type in SQL and its part of a row.
type Column[S any] struct {
	name, kind string
	of         func(steps []inbox.Step[S]) any
}

// Of is the column called name. For a UUID, C is pgtype.UUID: for an array of another
// UUID type pgx would ask the server, and it does not do that behind a transaction
// pooler.
func Of[S, C any](name, kind string, part func(row S) C) Column[S] {
	return Column[S]{name: name, kind: kind, of: func(steps []inbox.Step[S]) any {
		all := make([]C, len(steps))
		for i, s := range steps {
			all[i] = part(s.New)
		}
		return all
	}}
}

// Writer writes a copy's table. The table has a version in each row, and applied_at in
// addition to the columns. Write is a function for an inbox.Rows.
type Writer[S any] struct {
	sql      string
	columns  []Column[S]
	position func(row S) inbox.Position
}

// NewWriter returns the writer of a table with a key, such as "user_id, video_id". id
// is an SQL expression for a row's aggregate id in events.
func NewWriter[S any](table, key, id string, position func(row S) inbox.Position, columns ...Column[S]) *Writer[S] {
	var names, parameters, set []string
	for i, c := range columns {
		names = append(names, c.name)
		parameters = append(parameters, fmt.Sprintf("$%d::%s[]", i+1, c.kind))
		if !slices.Contains(strings.Split(key, ", "), c.name) {
			set = append(set, c.name+" = excluded."+c.name)
		}
	}
	parameters = append(parameters, fmt.Sprintf("$%d::bool[]", len(parameters)+1))
	// An absent row is inserted if it is still absent. An existing row is locked, so
	// its "conflict" is certain, and the statement finds it by its key with any plan.
	sql := strings.NewReplacer("{table}", table, "{key}", key, "{id}", id, "{columns}", strings.Join(names, ", "),
		"{set}", strings.Join(set, ", "), "{parameters}", strings.Join(parameters, ", ")).Replace(`
		WITH step AS MATERIALIZED (
		  SELECT {columns}, known FROM unnest({parameters}) AS s ({columns}, known)
		), fresh AS (
		  INSERT INTO {table} ({columns})
		  SELECT {columns} FROM step WHERE NOT known ORDER BY {key}
		  ON CONFLICT ({key}) DO NOTHING RETURNING {key}
		), moved AS (
		  INSERT INTO {table} ({columns})
		  SELECT {columns} FROM step WHERE known ORDER BY {key}
		  ON CONFLICT ({key}) DO UPDATE SET {set}, applied_at = clock_timestamp() RETURNING {key}
		)
		SELECT {id} FROM fresh UNION ALL SELECT {id} FROM moved`)
	return &Writer[S]{sql: sql, columns: columns, position: position}
}

// Write puts each New in place of its Old, all in one statement.
func (w *Writer[S]) Write(ctx context.Context, tx pgx.Tx, steps []inbox.Step[S]) ([]string, error) {
	args := make([]any, 0, len(w.columns)+1)
	for _, c := range w.columns {
		args = append(args, c.of(steps))
	}
	known := make([]bool, len(steps))
	for i, s := range steps {
		known[i] = w.position(s.Old).Version > 0
	}
	rows, _ := tx.Query(ctx, w.sql, append(args, known)...)
	written, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("write rows: %w", err)
	}
	return written, nil
}

// ByID collects locked rows for an inbox.Rows.
func ByID[S any](rows pgx.Rows, scan pgx.RowToFunc[S], id func(row S) string) (map[string]S, error) {
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
