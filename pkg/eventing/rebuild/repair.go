package rebuild

import (
	"context"
	"fmt"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxLost bounds the lost rows that are kept until the end of a comparison. If there are more, but
// not so many that the owner is doubtful, another comparison repairs them.
const maxLost = 10_000

// outcome is the result of a comparison, in rows.
type outcome struct {
	// differ counts the rows that are to be repaired.
	differ int
	// written counts the rows that were repaired.
	written int
	// left counts the rows that still differ after the attempt to repair them, and that nothing
	// else has written since the comparison.
	left int
	// moved counts the rows that are to be compared again, because something else wrote them before or
	// after their repair.
	moved int
	// unsettled counts the rows that could not be compared.
	unsettled int
	// more is true if there are lost rows that were not repaired, because there are more than maxLost.
	more bool
}

// repair repairs the rows of a part's shadow that differ from the owner's. It compares again, and repairs
// lost rows at once, if a comparison found more lost rows than maxLost and the owner was not doubtful.
func (w *worker) repair(ctx context.Context, p Part) error {
	for accept := w.options.AcceptLosses; ; accept = true {
		found, err := w.pass(ctx, &repairs{worker: w, phase: Comparing, part: p, comparison: p.Before, accept: accept})
		w.result.Repaired += found.written
		if err != nil || !found.more {
			return err
		}
	}
}

// pass makes one comparison. Unless losses are accepted, pass repairs lost rows only at the end of
// the comparison, when their number is known. If this number makes the owner doubtful, pass returns
// ErrLosses.
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
	// phase is Comparing for a shadow, and Checking for a served table. A row that is ahead of its
	// owner's counts as a loss in both, but is repaired in the served table only. A repair in the
	// shadow would make the shadow's row older than the served row.
	phase Phase
	// deciding is true if no row is repaired, because the comparison only shows whether the owner is
	// doubtful.
	deciding bool
	// accept is true if lost rows are repaired at once, however many they are.
	accept bool
	// rows counts the owner's rows that were read.
	rows int64
	// read is the number of rows of the served table before the comparison. A later count would include
	// missing rows that a repair has added, of which a wrong owner may have many.
	read int64
	// losses counts the lost rows (reconcile.Kind.Lost).
	losses int
	// lost are the lost rows that are repaired at the end of the comparison.
	lost []reconcile.Difference
}

// Passed reports the progress.
func (o *repairs) Passed(_ context.Context, _ string, rows int64) error {
	o.rows += rows
	o.seen.Passed(rows)
	return nil
}

// Waits reports that the comparison waits.
func (o *repairs) Waits(_ context.Context, rows int) { o.seen.Waits(o.comparison.Type(), rows) }

// Retries reports the error.
func (o *repairs) Retries(_ context.Context, err error) { o.seen.Retries(o.comparison.Type(), err) }

// Differ repairs the rows that may be repaired now, and keeps or counts the others.
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

// repairLosses repairs the lost rows. If there are too many of them (reconcile.Doubtful), it repairs
// none and returns ErrLosses, because the owner may be the wrong one. It compares their number with
// the rows of the served table. The rows of a shadow do not count, because a wrong owner would also
// have filled the shadow.
func (o *repairs) repairLosses(ctx context.Context) error {
	if !o.accept && reconcile.Doubtful(o.losses, o.rows, o.read) {
		return fmt.Errorf("%w: %d rows; it has %d, and the read model %d", ErrLosses, o.losses, o.rows, o.read)
	}
	return o.replace(ctx, o.lost)
}

// count returns the number of rows of a served table. It does not use statistics, which may be from
// before most of the rows.
func (w *worker) count(ctx context.Context, p Part) (rows int64, err error) {
	err = w.retry(ctx, longTime, func(ctx context.Context) error {
		return w.db.QueryRow(ctx, p.sql(`SELECT count(*) FROM {table}`)).Scan(&rows)
	})
	if err != nil {
		return 0, fmt.Errorf("count the rows of %s: %w", p.Table, err)
	}
	return rows, nil
}

// replace repairs the rows in found. It collects the written rows of all attempts, because an
// attempt does not write again the rows that an earlier attempt has written.
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

// verify looks at the rows once more after their repair. If a row still differs and has not changed, it
// counts as left, and verify names it to the observer. A row counts as moved in two cases: it differs and
// has changed since, or it was not written and no longer differs. A moved row may still be damaged, because
// an event changes a part of a row.
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
