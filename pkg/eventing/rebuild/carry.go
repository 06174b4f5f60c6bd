package rebuild

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"example.com/lockstep/pkg/eventing/bounded"
)

// ErrMirror means that the shadow still lacks rows of the served table after Rebuild has carried such
// rows over. The triggers of the mirror are then disabled, or gone.
var ErrMirror = errors.New("the mirror does not copy what is written to the served table")

// carryRows is the number of rows in a page of carry. It bounds the rows that one transaction reads, and
// in the worst case locks.
const carryRows = 10_000

// carry reads a page of the served table, and copies each row that the shadow lacks, or has in an
// older version. $1 is the id before the page, in the form of package reconcile. The statement
// reads both tables in one snapshot. In this snapshot, the mirror has already copied each row that
// was written since the rebuild began. If a row of the shadow has become newer before the statement
// writes the row, the newer row stays.
//
//go:embed carry.sql
var carry string

// carryAll carries over the rows that the owner's pages did not bring, because the owner does not
// know the rows or has older versions of them. If the first pass over a table finds such rows, a
// second pass must find none. If the second pass finds rows, the mirror does not work, and carryAll
// returns ErrMirror.
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

// carry carries over the rows of one table. lacking is the number of rows that the shadow lacked, or had in
// an older version.
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
	// Start is an id before the first row, because no row has the nil UUID.
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
