package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrShape means that a table and its shadow differ in more than their rows. There are two causes.
// A migration has changed the served table during the rebuild. Then the rebuild must be finished
// and started again. Or, at the begin of a rebuild, the table has something that a shadow cannot
// have, such as a foreign key.
var ErrShape = errors.New("the table and its shadow have different shapes")

// shape lists what readers and writers of table $1 see of it, except its rows and the names of its
// indexes. An index that is not valid yet equals no index of the other table. Triggers and views
// are left out, because the exchange creates them again. But a disabled trigger is listed, because
// the exchange would enable it. A view is listed if the rebuild's role is no member of the view's
// role, because the exchange cannot create the view then. Other dependants, such as a publication,
// a sequence, a function, or a policy of another table, are listed because they would stay with the old table.
//
//go:embed shape.sql
var shape string

// definition is the SQL expression for the definition of an index without its name.
const definition = `concat(i.indisunique, substr(pg_get_indexdef(i.indexrelid), strpos(pg_get_indexdef(i.indexrelid), ' USING ')))`

// shapeSQL returns the statement shape.
func shapeSQL() string { return strings.ReplaceAll(shape, "{definition}", definition) }

// querier is a pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// sameShape returns ErrShape if the table and its shadow differ.
func (p Part) sameShape(ctx context.Context, db querier) error {
	served, err := lines(ctx, db, shapeSQL(), p.Table)
	if err != nil {
		return err
	}
	shadow, err := lines(ctx, db, shapeSQL(), Shadow(p.Table))
	if err != nil {
		return err
	}
	var differ []string
	for _, line := range served {
		if !slices.Contains(shadow, line) {
			differ = append(differ, p.Table+" has "+line)
		}
	}
	for _, line := range shadow {
		if !slices.Contains(served, line) {
			differ = append(differ, Shadow(p.Table)+" has "+line)
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%w: %s", ErrShape, strings.Join(differ, "; "))
	}
	return nil
}

func lines(ctx context.Context, db querier, sql string, args ...any) ([]string, error) {
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// execAll runs the statements that a query returns.
func execAll(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
	statements, err := lines(ctx, tx, sql, args...)
	if err != nil || len(statements) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, strings.Join(statements, ";\n"))
	return err
}
