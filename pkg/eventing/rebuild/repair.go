package rebuild

import (
	"context"
	"fmt"

	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxLost bounds the lost rows that are remembered until the end of a comparison. If there are
// more, and not too many, another comparison repairs them.
const maxLost = 10_000

// outcome is the result of a comparison: how many rows differ and are to be repaired, how many of
// them were written, and how many rows could not be compared.
type outcome struct{ differ, written, unsettled int }

// repair compares a table with the owner's and repairs the rows that differ. Lost rows wait for
// the end, which shows how many they are: nothing is lost without a word.
func (w *worker) repair(ctx context.Context, in Phase, c reconcile.Comparison) (sum outcome, err error) {
	for accept := w.options.AcceptLosses; ; accept = true {
		rows, err := c.Reader.Estimate(ctx)
		if err != nil {
			return sum, err
		}
		w.seen.Begin(in, c.Model.Type(), rows)
		o := &repairs{worker: w, comparison: c, ahead: in == Checking, accept: accept}
		unsettled, err := c.Check(ctx, w.options.Comparison, o)
		if err == nil {
			err = o.repairLosses(ctx)
		}
		sum = outcome{sum.differ + o.differ, sum.written + o.written, unsettled}
		if err != nil || !o.more {
			return sum, err
		}
	}
}

// repairs is the observer of one comparison.
type repairs struct {
	*worker
	outcome

	comparison reconcile.Comparison
	// ahead says that rows that are ahead of their owner's are repaired, too. In the shadow
	// they would then be older than the served ones. They are losses in any case.
	ahead bool
	// accept says that losses are repaired at once.
	accept bool
	// rows is the number of the owner's.
	rows   int64
	losses int
	// lost are the losses to repair; more says that there are others.
	lost []reconcile.Difference
	more bool
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
		case d.Kind == reconcile.Ahead && !o.ahead:
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

func (o *repairs) repairLosses(ctx context.Context) error {
	if !o.accept && reconcile.Doubtful(o.losses, o.rows, o.rows) {
		return fmt.Errorf("%w: %d rows, and it has %d", ErrLosses, o.losses, o.rows)
	}
	return o.replace(ctx, o.lost)
}

// replace counts rows that an attempt has written once: the next one does not find them where
// they were.
func (o *repairs) replace(ctx context.Context, found []reconcile.Difference) error {
	if len(found) == 0 {
		return nil
	}
	o.differ += len(found)
	return o.retry(ctx, longTime, func(ctx context.Context) error {
		written, err := o.comparison.Repair(ctx, o.by, found)
		o.written += len(written)
		return err
	})
}
