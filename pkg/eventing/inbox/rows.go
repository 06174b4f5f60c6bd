package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxDecisions: a row that appeared between look and write is there at the
// second look, and locked. One more is margin.
const maxDecisions = 3

// Step is a batch's change of one row.
type Step[S any] struct {
	ID string
	// Old is the row as Lock returned it; the zero S where there was none.
	Old S
	New S
}

// Rows applies changes to a table with one row, or tombstone, per aggregate, by
// the rule of Decide: a batch is one look and one write, however many rows and
// changes it has.
type Rows[S any] struct {
	// Lock returns the rows with these ids by id, and locks them, in the order
	// of their ids, until tx ends. Where there is no row there is no entry.
	Lock func(ctx context.Context, tx pgx.Tx, ids []string) (map[string]S, error)
	// Position says where a row stands, the zero S at the zero Position.
	Position func(row S) Position
	// Onto is the row after c, from the row before.
	Onto func(row S, c Change) S
	// Write puts each New in place of its Old, and returns the ids that it has
	// written, in any order. An Old that is there is locked. An Old that is
	// absent could not be: Write leaves what is there by now alone, and Apply
	// decides again. Counters change here, by f(New) − f(Old), and only for
	// what is written.
	Write func(ctx context.Context, tx pgx.Tx, steps []Step[S]) (written []string, err error)
}

// Apply brings the rows forward by changes, which are ordered by aggregate and
// version and all of one aggregate type. It is a Handler's Apply.
func (r Rows[S]) Apply(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
	return r.apply(ctx, tx, changes, func(p Position, c Change) (Outcome, bool) {
		o := Decide(p, c)
		return o, o == Applied
	})
}

// Adopt brings rows to what their owner had at asOf, one change for each, by the
// rule Adopt. The changes are ordered by aggregate. The zero asOf is unknown.
func (r Rows[S]) Adopt(ctx context.Context, tx pgx.Tx, changes []Change, asOf time.Time) ([]Outcome, error) {
	return r.apply(ctx, tx, changes, func(p Position, c Change) (Outcome, bool) {
		o := Adopt(p, c, asOf)
		return o, o == Applied || o == Diverged
	})
}

// rule says what becomes of a change at a position, and whether the row moves.
type rule func(p Position, c Change) (o Outcome, moves bool)

func (r Rows[S]) apply(ctx context.Context, tx pgx.Tx, changes []Change, by rule) ([]Outcome, error) {
	outcomes := make([]Outcome, len(changes))
	var open []aggregate
	at := 0
	for _, part := range runs(changes, func(c Change) string { return c.Event.AggregateID }) {
		open = append(open, aggregate{part, outcomes[at : at+len(part)]})
		at += len(part)
	}
	for range maxDecisions {
		var err error
		if open, err = r.settle(ctx, tx, open, by); err != nil || len(open) == 0 {
			return outcomes, err
		}
	}
	return nil, fmt.Errorf("%s changed %d times between look and write", open[0].changes[0].Event.Key(), maxDecisions)
}

// aggregate is the changes of one aggregate, and what becomes of them.
type aggregate struct {
	changes  []Change
	outcomes []Outcome
}

func (a aggregate) id() string { return a.changes[0].Event.AggregateID }

// settle decides, and writes what is to move. It returns the aggregates of which
// a row has appeared meanwhile.
func (r Rows[S]) settle(ctx context.Context, tx pgx.Tx, all []aggregate, by rule) (again []aggregate, err error) {
	ids := make([]string, len(all))
	for i, a := range all {
		ids[i] = a.id()
	}
	rows, err := r.Lock(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	moving := make(map[string]aggregate, len(all))
	var steps []Step[S]
	for _, a := range all {
		old := rows[a.id()]
		row, moved := r.walk(old, a, by)
		if moved {
			steps = append(steps, Step[S]{ID: a.id(), Old: old, New: row})
			moving[a.id()] = a
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	written, err := r.Write(ctx, tx, steps)
	if err != nil {
		return nil, err
	}
	for _, id := range written {
		delete(moving, id)
	}
	for _, s := range steps { // in their order, not the map's
		if a, lost := moving[s.ID]; lost {
			again = append(again, a)
		}
	}
	return again, nil
}

// walk takes a row through a's changes.
func (r Rows[S]) walk(row S, a aggregate, by rule) (_ S, moved bool) {
	for i, c := range a.changes {
		var moves bool
		if a.outcomes[i], moves = by(r.Position(row), c); moves {
			row, moved = r.Onto(row, c), true
		}
	}
	return row, moved
}
