package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxChecks bounds the comparisons of a table after the exchange that repair rows. From the
// second one on, only rows that moved while they were repaired are repaired, and rows that
// cannot be written are found again.
const maxChecks = 5

var (
	// ErrLosses means that so many rows are lost at the owner that it may be the wrong one.
	ErrLosses = errors.New("the owner may be the wrong one, or may have lost rows")
	// ErrUnsettled means that rows could not be compared with their owner's.
	ErrUnsettled = errors.New("rows could not be compared")
)

// Options has a safe zero value.
type Options struct {
	// Rate is the most rows per second that are filled; 0 is no limit.
	Rate int
	// AcceptLosses has rows repaired that the owner does not have, or has lost, however many.
	AcceptLosses bool
	// Comparison is for the comparisons.
	Comparison reconcile.Options
}

// Observer receives how far a rebuild is.
type Observer interface {
	// Begin says that a phase begins with a type of aggregate, which has about total rows.
	Begin(p Phase, aggregateType string, total int64)
	// Passed says that rows more are done.
	Passed(rows int64)
	// Left names a row of the served table that differs still after its repair, and stands as
	// it was. A later comparison may name it again.
	Left(aggregateType, id string, kind reconcile.Kind)
}

// Result counts the rows of one Run.
type Result struct {
	// Filled is the owner's rows that were read.
	Filled int64 `json:"filled"`
	// Repaired rows of the shadow differed from the owner's, and RepairedAfter of the
	// table after it was served.
	Repaired      int `json:"repaired"`
	RepairedAfter int `json:"repaired_after"`
	// Left rows of the served table differ still after a repair that nothing has overtaken.
	// Unsettled rows could not be compared, or moved before each repair.
	Left      int `json:"left"`
	Unsettled int `json:"unsettled"`
}

// Run takes the rebuild to the phase Done, from where it is; without a rebuild it begins one.
// It returns ErrPhase if the rebuild is done before, or rolled back, and ErrShape before the exchange if a migration ran in
// between. It returns ErrLosses if the read model has many rows that the owner lacks, unless o
// accepts them: then nothing is exchanged, and no served row is repaired. It returns ErrUnsettled
// in the phase Checking while rows cannot be compared, and backfill.ErrRefused in the phase
// Filling if the shadow refuses many rows. Any error, and any death of the process, leaves a
// state from which Run goes on.
func (r *Rebuild) Run(ctx context.Context, by audit.Actor, o Options, seen Observer) (result Result, err error) {
	w := &worker{Rebuild: r, by: by, options: o, seen: seen, limit: reconcile.Options{Rate: o.Rate}.Limiter()}
	err = r.alone(ctx, func() error {
		for first := true; ; first = false {
			s, err := r.State(ctx)
			if err != nil || s.Phase == Done && !first {
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
	failed  int64 // are rows that could not be filled
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
	case Done, RolledBack:
	}
	return fmt.Errorf("%w: it is %s: finish it first, to begin another one", ErrPhase, s.Phase)
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
// empty id is the first row. A page of before the rebuild is asked for again.
func (w *worker) fillPart(ctx context.Context, s State, p Part, from string) error {
	for started := false; ; started = true {
		var f projection.Filled
		err := w.retry(ctx, longTime, func(ctx context.Context) (err error) {
			f, err = p.Shadow.Fill(ctx, from)
			if err == nil && f.AsOf.Before(s.StartedAt) {
				return fmt.Errorf("%w: its rows are of %s, and the rebuild began at %s", backfill.ErrReplica, f.AsOf, s.StartedAt)
			}
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
		if err := w.advance(ctx, s, p.Shadow.Type(), from, f.Rows); err != nil {
			return err
		}
		w.failed += int64(f.Failed)
		if err := backfill.CheckFailed(w.failed); err != nil || f.Done {
			return err
		}
		if err := w.limit.WaitN(ctx, min(f.Rows, w.limit.Burst())); err != nil {
			return err
		}
	}
}

// compare repairs the shadow, and has it served. What could not be decided is compared again
// after the exchange.
func (w *worker) compare(ctx context.Context, s State) error {
	for _, p := range w.parts {
		if _, err := w.carry(ctx, p); err != nil {
			return since(err)
		}
		if err := w.repair(ctx, p); err != nil {
			return fmt.Errorf("compare %s: %w", Shadow(p.Table), err)
		}
	}
	for _, p := range w.parts {
		if err := w.vacuum(ctx, p); err != nil {
			return fmt.Errorf("analyze %s: %w", Shadow(p.Table), err)
		}
	}
	return w.swap(ctx, w.by, "rebuild switch", s, Checking)
}

// vacuum is for the plans of the first readers, which need the statistics. It waits for its
// lock for as long as that takes: no reader waits behind it, and Postgres ends an autovacuum of
// the table.
func (w *worker) vacuum(ctx context.Context, p Part) error {
	return bounded.Run(ctx, longTime, func(ctx context.Context) error {
		return w.session(ctx, func(conn *pgx.Conn) error {
			if _, err := conn.Exec(ctx, `SET lock_timeout = 0`); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, p.sql(`VACUUM (ANALYZE) {shadow}`))
			return err
		})
	})
}

// check repairs the served rows. A comparison of all tables comes first and writes nothing: the
// table of before has each row that is written, so no rollback undoes what the wrong owner would
// cost. Another owner than before the exchange is possible: another process may have begun.
func (w *worker) check(ctx context.Context, s State) error {
	if err := w.runAfter(ctx); err != nil {
		return err
	}
	var found []outcome
	for _, p := range w.parts {
		o, err := w.pass(ctx, &repairs{
			worker: w, phase: Checking, part: p, comparison: p.After, deciding: true, accept: w.options.AcceptLosses,
		})
		if err != nil {
			return fmt.Errorf("compare %s: %w", p.Table, err)
		}
		found = append(found, o)
	}
	for i, p := range w.parts {
		if err := w.checkPart(ctx, p, found[i]); err != nil {
			return fmt.Errorf("compare %s: %w", p.Table, err)
		}
	}
	if w.result.Unsettled > 0 {
		return fmt.Errorf("%w: %d rows changed meanwhile, or the owner's answers are from before them", ErrUnsettled, w.result.Unsettled)
	}
	return w.enter(ctx, s, Done)
}

// checkPart repairs the rows of a table, if the comparison before has found any, until each row
// is its owner's or stands as it was seen: another repair would not write it either.
func (w *worker) checkPart(ctx context.Context, p Part, found outcome) (err error) {
	accept := w.options.AcceptLosses
	found.moved = found.differ
	for n := 0; n < maxChecks && (found.moved > 0 || found.more); n++ {
		accept = accept || found.more
		found, err = w.pass(ctx, &repairs{worker: w, phase: Checking, part: p, comparison: p.After, accept: accept})
		w.result.RepairedAfter += found.written
		if err != nil {
			return err
		}
	}
	w.result.Left += found.left
	w.result.Unsettled += found.unsettled + found.moved
	return nil
}
