package rebuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/time/rate"

	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/bounded"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// maxChecks is the most comparisons with repair that a table gets after the exchange. From the second
// comparison on, only two kinds of rows are left: rows that moved during their repair, and rows that cannot
// be written. Each comparison finds the rows of the second kind again.
const maxChecks = 5

var (
	// ErrLosses means that the owner lacks so many rows of the read model that it may be the wrong
	// one.
	ErrLosses = errors.New("the owner may be the wrong one, or may have lost rows")
	// ErrUnsettled means that rows could not be compared with their owner's.
	ErrUnsettled = errors.New("rows could not be compared")
)

// Options has a safe zero value.
type Options struct {
	// Rate is the most rows per second that are filled; 0 is no limit.
	Rate int
	// AcceptLosses allows the repair of rows that the owner does not have or has lost, however many
	// they are.
	AcceptLosses bool
	// Comparison holds the options of the comparisons with the owner.
	Comparison reconcile.Options
}

// Observer receives the progress of a rebuild.
type Observer interface {
	// Begin reports that a phase begins to work on an aggregate type, which has about total rows.
	Begin(p Phase, aggregateType string, total int64)
	// Passed reports that this number of further rows is done.
	Passed(rows int64)
	// Left names a row of the served table that still differs after its repair, and is otherwise
	// unchanged. A later comparison may name the row again.
	Left(aggregateType, id string, kind reconcile.Kind)
	// Waits is Waits of a reconcile.Observer, for the comparison of an aggregate type.
	Waits(aggregateType string, rows int)
	// Retries is Retries of a reconcile.Observer, for the comparison of an aggregate type. Run also calls
	// Retries for each attempt to fill a page that it repeats because the database was away or this process
	// stood still, and, once, if the rebuild cannot begin yet (ErrMigrating).
	Retries(aggregateType string, err error)
}

// Result counts the rows of one Run.
type Result struct {
	// Filled counts the owner's rows that were read.
	Filled int64 `json:"filled"`
	// Repaired counts the rows that were repaired in the shadow.
	Repaired int `json:"repaired"`
	// RepairedAfter counts the rows that were repaired in the new table after the exchange.
	RepairedAfter int `json:"repaired_after"`
	// Left counts served rows that still differ after their repair, although nothing else has
	// written them.
	Left int `json:"left"`
	// Unsettled counts served rows that could not be compared, or that something else wrote at each repair.
	Unsettled int `json:"unsettled"`
}

// Run takes the rebuild from its present phase to the phase Done. If there is no rebuild, it begins
// one. After any error, and after any death of the process, the next Run continues. Run returns
//
//   - ErrBusy if another process works on the rebuild.
//   - ErrMigrating, before it begins a rebuild, if a migration of the schema has been running for a
//     quarter of an hour.
//   - ErrPhase if the rebuild was done or rolled back before.
//   - ErrShape before the exchange if a migration has run since the begin, or at the begin if a
//     shadow cannot be like its table.
//   - ErrLosses if the read model has many rows that the owner lacks, unless o accepts them. Then
//     nothing is exchanged, and no served row is repaired.
//   - ErrUnsettled in the phase Checking while rows cannot be compared.
//   - backfill.ErrRefused in the phase Filling if the shadow refuses many rows.
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

// worker is the state of one call of Run.
type worker struct {
	*Rebuild

	by      audit.Actor
	options Options
	seen    Observer
	limit   *rate.Limiter
	result  Result
	failed  int64 // counts rows that could not be written to a shadow
}

// step does the work of the present phase, and enters the next one.
func (w *worker) step(ctx context.Context, s State) error {
	switch s.Phase {
	case None:
		return w.begin(ctx)
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

// begin begins a rebuild. It waits for the end of a migration that is running.
func (w *worker) begin(ctx context.Context) (err error) {
	began := time.Now()
	for attempt := range again.Attempts(ctx) {
		if err = w.create(ctx, w.by); !errors.Is(err, ErrMigrating) || time.Since(began) > longTime {
			return err
		}
		if attempt == 1 {
			w.seen.Retries(w.parts[0].Shadow.Type(), err)
		}
	}
	return err
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

// fillPage fills one page. It may be repeated, also after an attempt without an answer.
func (w *worker) fillPage(ctx context.Context, s State, p Part, from string) (f projection.Filled, err error) {
	err = w.retry(ctx, longTime, func(ctx context.Context) (err error) {
		f, err = p.Shadow.Fill(ctx, from)
		if err == nil && f.AsOf.Before(s.StartedAt) {
			return fmt.Errorf("%w: its rows are of %s, and the rebuild began at %s", backfill.ErrReplica, f.AsOf, s.StartedAt)
		}
		return err
	})
	return f, err
}

// fillPart fills one shadow. After the last page the state keeps the first id of that page, because
// an empty id means the first row of the table. A page that the owner read before the rebuild began
// is requested again. So is a page that failed because the database was away or the process stood
// still, for half a minute.
func (w *worker) fillPart(ctx context.Context, s State, p Part, from string) error {
	for started := false; ; started = true {
		f, err := bounded.TryAgain(ctx, func(err error) { w.seen.Retries(p.Shadow.Type(), err) }, func() (projection.Filled, error) {
			return w.fillPage(ctx, s, p, from)
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

// compare repairs the shadow, and exchanges the tables. Rows that could not be compared are
// compared again after the exchange.
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

// vacuum makes the statistics of a shadow, which the plans of the first readers after the exchange need.
// It waits for its lock for longer than lockTime, because no reader waits behind it, and Postgres ends an
// autovacuum of the table.
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

// check repairs the served rows. First it compares all tables without writing, to detect a wrong
// owner. The mirror copies each repaired row into the former table, so a rollback would not undo the
// repairs from a wrong owner. The owner may be another one than before the exchange, because another
// process, with another address of the owner, may have begun the rebuild.
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

// checkPart repairs the rows of a table. found is the outcome of a comparison of the table without repair.
// If no row differs in found, there is nothing to repair. Otherwise checkPart compares and repairs up to
// maxChecks times. It ends earlier if no row has moved: then each row equals its owner's row, or still
// differs and has not changed since it was compared, and another repair would not write it either.
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
