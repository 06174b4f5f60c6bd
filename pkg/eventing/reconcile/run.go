package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// run is the state of one check.
type run struct {
	Comparison

	definition Definition
	grace      time.Duration
	observer   Observer
	limit      *rate.Limiter
	// from is the id up to which all rows were compared.
	from string
	// shown is the time when the observer was last told that the check goes on.
	shown time.Time
	// pending are the uncertain rows, in the order of their ids and of the time at which the check first saw them.
	pending   []*uncertainRow
	unsettled int
}

// patience returns how long a row may stay uncertain as a difference of kind k. For the kinds other than
// Missing and Behind it is at least lossTime plus the grace period, because a difference of such a kind is
// usually not certain before lossTime is over.
func (r *run) patience(k Kind) time.Duration {
	if k == Missing || k == Behind {
		return graces * r.grace
	}
	return max(graces*r.grace, lossTime+r.grace)
}

// part checks the rows from the id from on, and returns the id at which the next part begins.
func (r *run) part(ctx context.Context, from string) (next string, err error) {
	if err := r.limit.WaitN(ctx, PartRows); err != nil {
		return "", err
	}
	owners, err := r.Owner.Part(ctx, r.definition, from)
	if err != nil {
		return "", fmt.Errorf("ask the owner: %w", err)
	}
	if len(owners.Leaves) == 0 || owners.Leaves[0].From != from || owners.Until <= from {
		return "", fmt.Errorf("%w: its digest of the rows from %s ends at %.100q", errAnswer, from, owners.Until)
	}
	mine, err := r.mineLeaves(ctx, from, owners)
	if err != nil {
		return "", err
	}
	for _, dirty := range compare(owners, mine.leaves, mine.complete) {
		if err := r.drill(ctx, dirty); err != nil {
			return "", err
		}
	}
	if err := r.settleOld(ctx); err != nil {
		return "", err
	}
	rows := int64(0)
	for _, leaf := range owners.Leaves {
		rows += leaf.Rows
	}
	return owners.Until, r.passed(ctx, owners.Until, rows)
}

// passed reports the progress, up to the first uncertain row. That row is not checked yet. If
// another check continues this one, that check judges the row again.
func (r *run) passed(ctx context.Context, next string, rows int64) error {
	r.from, r.shown = next, time.Now()
	if len(r.pending) > 0 {
		next = r.pending[0].id
	}
	return r.observer.Passed(ctx, next, rows)
}

// compare returns the ranges in which the two sides differ. Neighbouring ranges are joined into
// one. If complete is false, the ranges from the last leaf of mine on count as different, because the
// reader's rows in them were not all read.
func compare(owners Part, mine []own, complete bool) (dirty []Range) {
	byLeaf := make([]own, len(owners.Leaves))
	last := len(owners.Leaves)
	for _, leaf := range mine {
		byLeaf[leaf.N] = leaf
		if !complete { // the last leaf that was read may be cut
			last = leaf.N
		}
	}
	for i, leaf := range owners.Leaves {
		until := owners.Until
		if i+1 < len(owners.Leaves) {
			until = owners.Leaves[i+1].From
		}
		same := leaf.Rows == byLeaf[i].Rows && leaf.Digest == byLeaf[i].Digest && byLeaf[i].Epoch <= owners.Epoch
		switch {
		case same && i < last:
		case len(dirty) > 0 && dirty[len(dirty)-1].Until == leaf.From:
			dirty[len(dirty)-1].Until = until
		default:
			dirty = append(dirty, Range{leaf.From, until})
		}
	}
	return dirty
}

// drill compares the rows of a range.
func (r *run) drill(ctx context.Context, in Range) error {
	for in.From < in.Until {
		owners, err := r.Owner.Page(ctx, r.definition, in)
		if err != nil {
			return fmt.Errorf("ask the owner: %w", err)
		}
		if owners.Until <= in.From || owners.Until > in.Until {
			return fmt.Errorf("%w: its rows from %s to %s end at %.100q", errAnswer, in.From, in.Until, owners.Until)
		}
		mine, err := r.minePage(ctx, Range{in.From, owners.Until})
		if err != nil {
			return err
		}
		// A row of the owner behind the reader's page belongs to the next page.
		owners.Rows = slices.DeleteFunc(owners.Rows, func(row Row) bool { return row.ID >= mine.Until })
		if err := r.limit.WaitN(ctx, min(len(owners.Rows)+len(mine.Rows), r.limit.Burst())); err != nil {
			return err
		}
		if err := r.judge(ctx, mine, owners); err != nil {
			return err
		}
		in.From = mine.Until
		if err := r.alive(ctx); err != nil {
			return err
		}
	}
	return nil
}

// alive shows the observer that the check goes on, because many rows may be read before a part is
// passed.
func (r *run) alive(ctx context.Context) error { return r.passed(ctx, r.from, 0) }

// judge reports the rows that certainly differ, and remembers the rows that may differ.
func (r *run) judge(ctx context.Context, mine, owners Page) error {
	var found []Difference
	pairs := map[string][2]Row{}
	for side, rows := range [][]Row{mine.Rows, owners.Rows} {
		for _, row := range rows {
			pair := pairs[row.ID]
			pair[side] = row
			pairs[row.ID] = pair
		}
	}
	for _, id := range slices.Sorted(maps.Keys(pairs)) {
		reader, owner := pairs[id][0], pairs[id][1]
		kind := kindOf(reader, owner, owners.Answer)
		if kind == "" {
			continue
		}
		s := &uncertainRow{id: id, first: time.Now()}
		if s.certain(kind, reader, owner, owners.Answer, r.grace) {
			found = append(found, Difference{id, kind, reader, owner})
		} else {
			r.pending = append(r.pending, s)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return r.observer.Differ(ctx, found)
}
