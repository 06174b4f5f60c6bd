package reconcile

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// The range of the times that an owner's row has for its readers, which is that of JSON and
// protobuf. The first day is not that of Go's zero time, which is no time.
var (
	firstDay = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
	lastDay  = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
)

// RowTo is pgx.RowToStructByName of an owner's row. A time that is infinite, which a Go program
// cannot read, or outside of the years 1 to 9999, is the first or the last day of them: one such
// row must not keep the others of its page from the reader. Its digest shows it afterwards.
func RowTo[R any](row pgx.CollectableRow) (R, error) { return pgx.RowToStructByName[R](finite{row}) }

// finite is a row whose times are brought into range.
type finite struct{ pgx.CollectableRow }

// Scan is that of a pgx.CollectableRow.
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

// errNull means that a time has no value, and needs one.
var errNull = errors.New("the time is NULL")

// inRange receives a time, or nil for NULL, from Postgres.
type inRange func(*time.Time) error

// ScanTimestamptz is that of a pgtype.TimestamptzScanner.
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
