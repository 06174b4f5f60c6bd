package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// listRows is the most rows of a Listing. The reader can write that many within the time of
	// one request.
	listRows = 500
	// listBytes bounds the content of a Listing's rows. A message of 4 MiB has room for this
	// content, its framing, and the longest row besides.
	listBytes = 1 << 20
)

// Listing is whole rows of an owner's table, in the order of their ids.
type Listing[R any] struct {
	Answer
	Rows []R
	// Next is the id at which the next Listing begins; empty after the last row.
	Next string
	// Estimate is about how many rows the table has.
	Estimate int64
}

// List lists the rows of an owner's table from an id on, including tombstones. It returns up to 500
// rows, and fewer if the rows are long, but at least one if there is any. If from is empty, the
// listing begins at the table's first id. columns are the names of R's fields, separated by commas,
// and RowTo reads them into R. The function id returns the id of a row.
func List[R any](ctx context.Context, t *Table, columns, from string, id func(R) string) (l Listing[R], err error) {
	from = cmp.Or(from, t.Start())
	if err := t.Key.check(from); err != nil {
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

// read keeps rows up to listRows and listBytes. Further rows are not kept in memory.
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

// firstDay and lastDay bound the times in the rows that an owner gives its readers. The bounds are
// those of JSON and protobuf, except that firstDay is a day later, because Go's zero time means no
// time.
var (
	firstDay = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// RowTo is pgx.RowToStructByName for an owner's row. A Go program cannot read a time that is
// infinite. If a time is infinite, or outside of the years 1 to 9999, RowTo returns firstDay or
// lastDay instead. Otherwise one such row would keep the other rows of its page from the reader.
// The digest of such a row shows the difference afterwards.
func RowTo[R any](row pgx.CollectableRow) (R, error) { return pgx.RowToStructByName[R](finite{row}) }

// finite is a row whose times are brought into range.
type finite struct{ pgx.CollectableRow }

// Scan implements pgx.CollectableRow.
func (f finite) Scan(dest ...any) error {
	for i, field := range f.FieldDescriptions() {
		if field.DataTypeOID != pgtype.TimestamptzOID {
			continue
		}
		switch to := dest[i].(type) {
		case *time.Time:
			dest[i] = inRange(func(t *time.Time) error {
				if t == nil {
					return errNull
				}
				*to = *t
				return nil
			})
		case **time.Time:
			dest[i] = inRange(func(t *time.Time) error { *to = t; return nil })
		}
	}
	return f.CollectableRow.Scan(dest...)
}

// errNull means that a time is NULL although it needs a value.
var errNull = errors.New("the time is NULL")

// inRange receives a time, or nil for NULL, from Postgres.
type inRange func(*time.Time) error

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (set inRange) ScanTimestamptz(t pgtype.Timestamptz) error {
	year := t.Time.UTC().Year()
	switch {
	case !t.Valid:
		return set(nil)
	case t.InfinityModifier == pgtype.Infinity, t.InfinityModifier == pgtype.Finite && year > lastDay.Year():
		t.Time = lastDay
	case t.InfinityModifier == pgtype.NegativeInfinity, year < firstDay.Year():
		t.Time = firstDay
	}
	return set(&t.Time)
}
