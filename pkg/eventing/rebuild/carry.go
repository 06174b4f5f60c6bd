package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"example.com/lockstep/pkg/eventing/bounded"
)

// ErrMirror is returned if rows of the served table keep coming that the shadow lacks: the
// mirror's triggers are disabled, or gone.
var ErrMirror = errors.New("the mirror does not copy what is written to the served table")

// carryRows is the length of a page of carry. It bounds the rows that are read, and in the
// worst case locked, by one transaction.
const carryRows = 10_000

// carry gives the shadow those rows of a page of the served table that it lacks or has older
// versions of. $1 is the id before the page, as in package reconcile. One statement reads
// both tables in one snapshot, in which the mirror has copied what is written; a row that is
// newer by the time of the write stays.
//
//go:embed carry.sql
var carry string

// carryAll carries the rows over that the owner's pages did not bring: those that the owner
// does not know, or has in an older version. After a pass that found some, a second one finds
// none, or the mirror fails.
func (r *Rebuild) carryAll(ctx context.Context) error {
	for _, p := range r.parts {
		left, err := r.carry(ctx, p)
		if err == nil && left > 0 {
			left, err = r.carry(ctx, p)
		}
		if err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%w: %d rows of %s", ErrMirror, left, p.Table)
		}
	}
	return nil
}

// carry returns how many rows the shadow lacked.
func (r *Rebuild) carry(ctx context.Context, p Part) (lacking int64, err error) {
	var statement string
	err = bounded.Run(ctx, shortTime, func(ctx context.Context) (err error) {
		if err = p.sameShape(ctx, r.db); err == nil {
			statement, err = p.withColumns(ctx, r.db, carry)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	// The first id is before the first row: nothing has the nil UUID.
	for after := p.Key.Start(); after != ""; {
		var n int64
		err := r.retry(ctx, longTime, func(ctx context.Context) error {
			return r.db.QueryRow(ctx, statement, after, carryRows).Scan(&after, &n)
		})
		if err != nil {
			return lacking, fmt.Errorf("carry rows of %s over: %w", p.Table, err)
		}
		lacking += n
	}
	return lacking, nil
}
