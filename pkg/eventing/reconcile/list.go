package reconcile

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	// listRows is the most rows of a Listing: its reader writes them within the time of one
	// request.
	listRows = 500
	// listBytes bounds the content of a Listing's rows. A message of 4 MiB holds it with
	// its framing, and the longest row besides.
	listBytes = 1 << 20
)

// Listing is whole rows of an owner's table, in the order of their ids.
type Listing[R any] struct {
	Answer
	Rows []R
	// Next is the id at which the next Listing begins; empty after the last row.
	Next string
	// Estimate is that of the table.
	Estimate int64
}

// List lists the rows of an owner's table from an id on, tombstones too: up to 500, and
// fewer if they are long, but at least one if there is any. An empty from is the table's
// first id. columns are R's fields, by name, and RowTo reads them; id returns the id of a row.
func List[R any](ctx context.Context, t *Table, columns, from string, id func(R) string) (l Listing[R], err error) {
	from = cmp.Or(from, t.Start())
	if err := t.checkID(from); err != nil {
		return l, err
	}
	sql := t.sql(Definition{}, `SELECT `+columns+` FROM {table} WHERE ({key}) >= {lower} ORDER BY {key} LIMIT $2`)
	answer, err := t.query(ctx, func(rows pgx.Rows) error { return l.read(rows, id) }, sql, from, listRows+1)
	if err != nil {
		return Listing[R]{}, fmt.Errorf("list %s: %w", t.name, err)
	}
	l.Answer = answer
	l.Estimate, err = t.Estimate(ctx)
	return l, err
}

// read keeps rows up to the bounds. Rows behind them are not kept in memory.
func (l *Listing[R]) read(rows pgx.Rows, id func(R) string) error {
	defer rows.Close()
	bytes := 0
	for rows.Next() {
		row, err := RowTo[R](rows)
		if err != nil {
			return err
		}
		for _, value := range rows.RawValues() {
			bytes += len(value)
		}
		if len(l.Rows) == listRows || len(l.Rows) > 0 && bytes > listBytes {
			l.Next = id(row)
			break
		}
		l.Rows = append(l.Rows, row)
	}
	rows.Close()
	return rows.Err()
}
