package rebuild

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxChecks bounds the comparisons after the exchange. From the second one on, only rows that
// moved while they were repaired are left.
const maxChecks = 5

// Options has a safe zero value.
type Options struct {
	// Rate is the most rows per second that are filled; 0 is no limit.
	Rate int
	// Comparison is for the comparisons.
	Comparison reconcile.Options
}

// Observer receives how far a rebuild is.
type Observer interface {
	// Begin says that a phase begins with a type of aggregate, which has about total rows.
	Begin(p Phase, aggregateType string, total int64)
	// Passed says that rows more are done.
	Passed(rows int64)
}

// Result counts the rows of one Run.
type Result struct {
	// Filled is the owner's rows that were read.
	Filled int64 `json:"filled"`
	// Repaired rows of the shadow differed from the owner's, and RepairedAfter of the
	// table after it was served.
	Repaired      int `json:"repaired"`
	RepairedAfter int `json:"repaired_after"`
}

// Run takes the rebuild to the phase Done, from where it is; without a rebuild it begins one.
// It returns ErrPhase after a rollback, and ErrShape before the exchange if a migration ran in
// between. Any error, and any death of the process, leaves a state from which Run goes on.
func (r *Rebuild) Run(ctx context.Context, by audit.Actor, o Options, seen Observer) (result Result, err error) {
	w := &worker{Rebuild: r, by: by, options: o, seen: seen, limit: rate.NewLimiter(rate.Inf, reconcile.PartRows)}
	if o.Rate > 0 {
		w.limit.SetLimit(rate.Limit(o.Rate))
	}
	err = r.alone(ctx, func() error {
		for {
			s, err := r.State(ctx)
			if err != nil || s.Phase == Done {
				return err
			}
			if err := w.step(ctx, s); err != nil {
				return err
			}
		}
	})
	return w.result, err
}

// worker is a process that runs a rebuild.
type worker struct {
	*Rebuild

	by      audit.Actor
	options Options
	seen    Observer
	limit   *rate.Limiter
	result  Result
}

// step does the work of a phase, and enters the next one.
func (w *worker) step(ctx context.Context, s State) error {
	switch s.Phase {
	case None:
		return w.create(ctx, w.by)
	case Filling:
		return w.fill(ctx, s)
	case Comparing:
		return w.compare(ctx, s)
	case Checking:
		return w.check(ctx, s)
	case Done, RolledBack: // RolledBack only: Run ends with Done
	}
	return fmt.Errorf("%w: it is %s: finish it first", ErrPhase, s.Phase)
}

func (w *worker) fill(ctx context.Context, s State) error {
	first := slices.IndexFunc(w.parts, func(p Part) bool { return p.Shadow.Type() == s.AggregateType })
	if first < 0 {
		return fmt.Errorf("%w: another build is filling %q", ErrPhase, s.AggregateType)
	}
	from := s.Next
	for n, p := range w.parts[first:] {
		if n > 0 {
			if err := w.advance(ctx, s, p.Shadow.Type(), "", 0); err != nil {
				return err
			}
			from = ""
		}
		if err := w.fillPart(ctx, s, p, from); err != nil {
			return fmt.Errorf("fill %s: %w", Shadow(p.Table), err)
		}
	}
	return w.enter(ctx, s, Comparing)
}

// fillPart fills one shadow. After the last page it leaves that page's begin in the state: an
// empty id is the first row.
func (w *worker) fillPart(ctx context.Context, s State, p Part, from string) error {
	for started := false; ; started = true {
		var f projection.Filled
		err := w.retry(ctx, longTime, func(ctx context.Context) (err error) {
			f, err = p.Shadow.Fill(ctx, from)
			return err
		})
		if err != nil {
			return err
		}
		if !started {
			w.seen.Begin(Filling, p.Shadow.Type(), f.Estimate)
		}
		w.result.Filled += int64(f.Rows)
		w.seen.Passed(int64(f.Rows))
		if !f.Done {
			from = f.Next
		}
		if err := w.advance(ctx, s, p.Shadow.Type(), from, f.Rows); err != nil || f.Done {
			return err
		}
		if err := w.limit.WaitN(ctx, min(f.Rows, w.limit.Burst())); err != nil {
			return err
		}
	}
}

// compare repairs the shadow, and has it served.
func (w *worker) compare(ctx context.Context, s State) error {
	for _, p := range w.parts {
		if _, err := w.carry(ctx, p); err != nil {
			return err
		}
		repaired, err := w.repair(ctx, Comparing, p.Before)
		w.result.Repaired += repaired
		if err != nil {
			return fmt.Errorf("compare %s: %w", Shadow(p.Table), err)
		}
	}
	for _, p := range w.parts {
		// The plans of the first readers need the statistics.
		if err := bounded(ctx, longTime, func(ctx context.Context) error {
			_, err := w.db.Exec(ctx, p.sql(`VACUUM (ANALYZE) {shadow}`))
			return err
		}); err != nil {
			return fmt.Errorf("analyze %s: %w", Shadow(p.Table), err)
		}
	}
	return w.swap(ctx, w.by, "rebuild switch", s, Checking)
}

// check repairs the served rows until a comparison finds none that differ.
func (w *worker) check(ctx context.Context, s State) error {
	if err := w.runAfter(ctx); err != nil {
		return err
	}
	for _, p := range w.parts {
		found := 1
		for n := 0; found > 0; n++ {
			if n == maxChecks {
				return fmt.Errorf("%d rows of %s differ from their owner's after %d repairs of each", found, p.Table, n)
			}
			var err error
			found, err = w.repair(ctx, Checking, p.After)
			w.result.RepairedAfter += found
			if err != nil {
				return fmt.Errorf("compare %s: %w", p.Table, err)
			}
		}
	}
	return w.enter(ctx, s, Done)
}

// repair compares a table with the owner's and repairs the rows that differ. It returns how
// many did.
func (w *worker) repair(ctx context.Context, in Phase, c reconcile.Comparison) (found int, err error) {
	rows, err := c.Reader.Estimate(ctx)
	if err != nil {
		return 0, err
	}
	w.seen.Begin(in, c.Model.Type(), rows)
	o := &repairs{worker: w, model: c.Model, ahead: in == Checking}
	_, err = c.Check(ctx, w.options.Comparison, o)
	return o.found, err
}

// repairs is the observer of one comparison.
type repairs struct {
	*worker

	model reconcile.Model
	// ahead says that rows that are ahead of their owner's are repaired, too. In the shadow
	// they would then be older than the served ones.
	ahead bool
	found int
}

// Passed shows the progress.
func (o *repairs) Passed(_ context.Context, _ string, rows int64) error {
	o.seen.Passed(rows)
	return nil
}

// Differ repairs the rows.
func (o *repairs) Differ(ctx context.Context, differences []reconcile.Difference) error {
	var rows []reconcile.Row
	for _, d := range differences {
		if d.Kind != reconcile.Ahead || o.ahead {
			d.Reader.ID = d.ID
			rows = append(rows, d.Reader)
		}
	}
	o.found += len(rows)
	return o.retry(ctx, longTime, func(ctx context.Context) error {
		_, err := o.model.Replace(ctx, o.by, rows)
		return err
	})
}
