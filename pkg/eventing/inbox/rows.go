package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxDecisions is how many times the changes of a row are decided at most. If a row appears between
// the first read and the first write, the second read finds and locks it. So two decisions are
// enough, and the third is a margin.
const maxDecisions = 3

// Step is a batch's change of one row.
type Step[S any] struct {
	ID string
	// Old is the row as Lock returned it, or the zero S if there was none.
	Old S
	New S
}

// Rows is a service's table with one row, or tombstone, per aggregate. ApplyChanges and
// AdoptChanges move its rows. A batch takes one read and one write, however many rows and changes
// it has.
type Rows[S any] interface {
	// Lock returns the rows with these ids, by id, and locks them in the order of their ids until
	// tx ends. A row that does not exist has no entry.
	Lock(ctx context.Context, tx pgx.Tx, ids []string) (map[string]S, error)
	// Position returns the position of a row. The zero S has the zero Position.
	Position(row S) Position
	// Apply returns the row as it is after the change c. row is the row before c. Apply writes
	// nothing.
	Apply(row S, c Change) S
	// Upsert writes each New in place of its Old, and returns the ids of the rows that it has
	// written, in any order. A row that Lock returned is locked. A row that did not exist could not
	// be locked. If such a row has appeared since, Upsert does not change it, and the change is
	// decided again. If counters depend on the rows, Upsert also changes each counter, but only for
	// the rows that it writes. The change is f(New) − f(Old), where f(row) is the row's share in
	// the counter.
	Upsert(ctx context.Context, tx pgx.Tx, steps []Step[S]) (written []string, err error)
}

// ApplyChanges applies changes to rows by the rule Decide. The changes are ordered by aggregate
// and version, and all are of one aggregate type.
func ApplyChanges[S any](ctx context.Context, tx pgx.Tx, rows Rows[S], changes []Change) ([]Outcome, error) {
	return mover[S]{rows: rows, rule: Decide}.move(ctx, tx, changes)
}

// AdoptChanges applies the owner's state as of the time asOf to rows by the rule Adopt. There is
// one change for each row, and the changes are ordered by aggregate. A zero asOf means that the
// time is unknown.
func AdoptChanges[S any](ctx context.Context, tx pgx.Tx, rows Rows[S], changes []Change, asOf time.Time) ([]Outcome, error) {
	return mover[S]{rows: rows, owned: true, rule: func(p Position, c Change) Outcome { return Adopt(p, c, asOf) }}.move(ctx, tx, changes)
}

// AdvanceChanges is AdoptChanges with the rule Advance.
func AdvanceChanges[S any](ctx context.Context, tx pgx.Tx, rows Rows[S], changes []Change, asOf time.Time) ([]Outcome, error) {
	return mover[S]{rows: rows, owned: true, rule: func(p Position, c Change) Outcome { return Advance(p, c, asOf) }}.move(ctx, tx, changes)
}

// ReplaceChanges is AdoptChanges with the rule Replace. For the id of each row, the map seen has
// the position at which the row was found to differ. If an id has no entry, the row was missing.
func ReplaceChanges[S any](
	ctx context.Context, tx pgx.Tx, rows Rows[S], changes []Change, seen map[string]Position, asOf time.Time,
) ([]Outcome, error) {
	return mover[S]{rows: rows, owned: true, rule: func(p Position, c Change) Outcome {
		return Replace(seen[c.Event.AggregateID], p, c, asOf)
	}}.move(ctx, tx, changes)
}

// mover moves rows by a rule.
type mover[S any] struct {
	rows Rows[S]
	rule func(p Position, c Change) Outcome
	// owned says that the changes are the owner's state. Such a change also replaces a row of
	// another history.
	owned bool
}

// decide returns the outcome of the change c for a row at the position p, and whether the row
// moves.
func (m mover[S]) decide(p Position, c Change) (o Outcome, moves bool) {
	o = m.rule(p, c)
	return o, o == Applied || m.owned && o == Diverged
}

func (m mover[S]) move(ctx context.Context, tx pgx.Tx, changes []Change) ([]Outcome, error) {
	outcomes := make([]Outcome, len(changes))
	var open []aggregate
	at := 0
	for _, part := range runs(changes, func(c Change) string { return c.Event.AggregateID }) {
		open = append(open, aggregate{part, outcomes[at : at+len(part)]})
		at += len(part)
	}
	for range maxDecisions {
		var err error
		if open, err = m.try(ctx, tx, open); err != nil || len(open) == 0 {
			return outcomes, err
		}
	}
	return nil, fmt.Errorf("%s changed %d times between read and write", open[0].changes[0].Event.Key(), maxDecisions)
}

// aggregate has the changes of one aggregate, and their outcomes.
type aggregate struct {
	changes  []Change
	outcomes []Outcome
}

func (a aggregate) id() string { return a.changes[0].Event.AggregateID }

// try decides the changes once, and writes the rows that move. It returns the aggregates whose rows
// were not written, because they have appeared since the read.
func (m mover[S]) try(ctx context.Context, tx pgx.Tx, all []aggregate) (again []aggregate, err error) {
	ids := make([]string, len(all))
	for i, a := range all {
		ids[i] = a.id()
	}
	rows, err := m.rows.Lock(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	moving := make(map[string]aggregate, len(all))
	var steps []Step[S]
	for _, a := range all {
		old := rows[a.id()]
		row, moved := m.next(old, a)
		if moved {
			steps = append(steps, Step[S]{ID: a.id(), Old: old, New: row})
			moving[a.id()] = a
		}
	}
	if len(steps) == 0 {
		return nil, nil
	}
	written, err := m.rows.Upsert(ctx, tx, steps)
	if err != nil {
		return nil, err
	}
	for _, id := range written {
		delete(moving, id)
	}
	for _, s := range steps { // in the order of steps, because a map has no order
		if a, lost := moving[s.ID]; lost {
			again = append(again, a)
		}
	}
	return again, nil
}

// next returns the row after a's changes, and whether any of them moved it.
func (m mover[S]) next(row S, a aggregate) (_ S, moved bool) {
	for i, c := range a.changes {
		var moves bool
		if a.outcomes[i], moves = m.decide(m.rows.Position(row), c); moves {
			row, moved = m.rows.Apply(row, c), true
		}
	}
	return row, moved
}
