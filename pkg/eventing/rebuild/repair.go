package rebuild

import (
	"context"
	"fmt"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxLost bounds the lost rows that are remembered until the end of a comparison. If there are
// more, and not too many, another comparison repairs them.
const maxLost = 10_000

// outcome is the result of a comparison, in rows.
type outcome struct {
	// differ is the rows that are to be repaired, and written those of them that were.
	differ, written int
	// left rows differ still, and stand as they were seen. moved rows are to be compared again:
	// something else wrote them before their repair, or after it.
	left, moved int
	// unsettled rows could not be compared.
	unsettled int
	// more says that there are more losses than maxLost.
	more bool
}

// repair repairs the rows of a part's shadow that differ from the owner's.
func (w *worker) repair(ctx context.Context, p Part) error {
	for accept := w.options.AcceptLosses; ; accept = true {
		found, err := w.pass(ctx, &repairs{worker: w, phase: Comparing, part: p, comparison: p.Before, accept: accept})
		w.result.Repaired += found.written
		if err != nil || !found.more {
			return err
		}
	}
}

// pass makes one comparison. Lost rows wait for its end, which shows how many they are: nothing
// is lost without a word.
func (w *worker) pass(ctx context.Context, o *repairs) (outcome, error) {
	rows, err := o.comparison.Reader.Estimate(ctx)
	if err != nil {
		return o.outcome, err
	}
	w.seen.Begin(o.phase, o.comparison.Type(), rows)
	if o.read, err = w.count(ctx, o.part); err != nil {
		return o.outcome, err
	}
	o.unsettled, err = o.comparison.Check(ctx, w.options.Comparison, o)
	if err == nil {
		err = o.repairLosses(ctx)
	}
	return o.outcome, err
}

// repairs is the observer of one comparison.
type repairs struct {
	*worker
	outcome

	part       Part
	comparison reconcile.Comparison
	// phase is Comparing for a shadow, and Checking for a served table. Rows that are ahead of
	// their owner's are repaired in the served table only: in the shadow they would then be
	// older than the served ones. They are losses in any case.
	phase Phase
	// deciding says that nothing is written: the comparison shows whether the owner is doubtful.
	deciding bool
	// accept says that losses are repaired at once.
	accept bool
	// rows is the number of the owner's, and read that of the served table's before the
	// comparison: a repair adds the rows that are missing, and those of the wrong owner are many.
	rows, read int64
	losses     int
	// lost are the losses to repair.
	lost []reconcile.Difference
}

// Passed shows the progress.
func (o *repairs) Passed(_ context.Context, _ string, rows int64) error {
	o.rows += rows
	o.seen.Passed(rows)
	return nil
}

// Differ repairs the rows.
func (o *repairs) Differ(ctx context.Context, differences []reconcile.Difference) error {
	var found []reconcile.Difference
	for _, d := range differences {
		if d.Kind.Lost() {
			o.losses++
		}
		switch {
		case d.Kind == reconcile.Ahead && o.phase == Comparing:
		case o.deciding:
			o.differ++
		case o.accept || !d.Kind.Lost():
			found = append(found, d)
		case len(o.lost) < maxLost:
			o.lost = append(o.lost, d)
		default:
			o.more = true
		}
	}
	return o.replace(ctx, found)
}

// repairLosses repairs the lost rows, unless they are doubtful. The rows of the served table
// count for that, and not those of a shadow: it has the owner's by now, whichever owner that is.
func (o *repairs) repairLosses(ctx context.Context) error {
	if !o.accept && reconcile.Doubtful(o.losses, o.rows, o.read) {
		return fmt.Errorf("%w: %d rows; it has %d, and the read model %d", ErrLosses, o.losses, o.rows, o.read)
	}
	return o.replace(ctx, o.lost)
}

// count returns the rows of a served table. Statistics may be from before most of them.
func (w *worker) count(ctx context.Context, p Part) (rows int64, err error) {
	err = w.retry(ctx, longTime, func(ctx context.Context) error {
		return w.db.QueryRow(ctx, p.sql(`SELECT count(*) FROM {table}`)).Scan(&rows)
	})
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s: %w", p.Table, err)
	}
	return rows, nil
}

// replace counts rows that an attempt has written once: the next one does not find them where
// they were.
func (o *repairs) replace(ctx context.Context, found []reconcile.Difference) error {
	if len(found) == 0 {
		return nil
	}
	o.differ += len(found)
	written := map[string]bool{}
	err := o.retry(ctx, longTime, func(ctx context.Context) error {
		ids, err := o.comparison.Repair(ctx, o.by, found)
		for _, id := range ids {
			written[id] = true
		}
		return err
	})
	o.written += len(written)
	if err != nil || o.phase == Comparing {
		return err
	}
	return o.verify(ctx, found, written)
}

// verify looks at the rows once more after their repair, and names those that are left. A row
// that was not written, and does not stand, may have moved with its damage: an event changes a
// part of a row.
func (o *repairs) verify(ctx context.Context, found []reconcile.Difference, written map[string]bool) error {
	var differ []reconcile.Difference
	err := o.retry(ctx, longTime, func(ctx context.Context) (err error) {
		differ, err = o.comparison.Still(ctx, found)
		return err
	})
	if err != nil {
		return err
	}
	still := map[string]reconcile.Difference{}
	for _, d := range differ {
		still[d.ID] = d
	}
	for _, was := range found {
		d, differs := still[was.ID]
		switch {
		case differs && d.Stands(was):
			o.left++
			o.seen.Left(o.comparison.Type(), d.ID, d.Kind)
		case differs || !written[was.ID]:
			o.moved++
		}
	}
	return nil
}
