package operator

import (
	"context"
	"fmt"
	"io"
	"strings"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// asOwner adds a hint for the operator to the error of a role that does not own the tables.
func asOwner(do subcommand) subcommand {
	return func(ctx context.Context, s *invocation) error {
		return hinted(do(ctx, s), insufficientPrivilege, "is DATABASE_URL that of migrate?")
	}
}

// openRebuild connects to the database. owner is the name of the environment variable with the
// owner's address. If owner is not empty, openRebuild connects to the owner, too.
func (m ReadModel) openRebuild(ctx context.Context, s *invocation, owner string) (b rebuilding, err error) {
	if err := s.connect(ctx, needs{owner: owner, session: rebuild.Session(m.Schema)}); err != nil {
		return b, err
	}
	b.Rebuild = m.Rebuild(s.db, s.owner)
	if b.state, err = b.State(ctx); err != nil {
		return b, err
	}
	b.need, err = b.Need(ctx)
	return b, err
}

func (m ReadModel) rebuildStatus(ctx context.Context, s *invocation) error {
	if err := s.parse(0); err != nil {
		return err
	}
	b, err := m.openRebuild(ctx, s, "")
	if err != nil {
		return err
	}
	return s.print(rebuildResult{DryRun: true, State: b.state, Need: b.need}, func(w io.Writer) {
		if b.state.Phase == rebuild.None {
			fmt.Fprintf(w, "There is no rebuild. %s\n", b.needs())
			return
		}
		fmt.Fprintf(w, "phase\t%s since %s\n", b.state.Phase, stamp(b.state.ChangedAt))
		fmt.Fprintf(w, "begun\t%s by %s\n", stamp(b.state.StartedAt), b.state.StartedBy)
		fmt.Fprintf(w, "rows read\t%d, the last ones of type %s\n", b.state.Rows, b.state.AggregateType)
		fmt.Fprintf(w, "copy that is not served\t%s\n", megabytes(b.state.ShadowBytes))
		if len(b.state.Missing) > 0 {
			fmt.Fprintf(w, "tables that were dropped\t%s: events of their types wait until `rebuild finish`, and none is lost\n",
				strings.Join(b.state.Missing, ", "))
		}
	})
}

func (m ReadModel) runRebuild(ctx context.Context, s *invocation) error {
	var free string
	var o rebuild.Options
	s.flags.StringVar(&free, "disk-free", "", "")
	s.flags.IntVar(&o.Rate, "rate", backfillRate, "")
	s.flags.DurationVar(&o.Comparison.Grace, "grace", reconcile.DefaultGrace, "")
	s.flags.BoolVar(&o.AcceptLosses, "accept-losses", false, "")
	s.confirmFlags()
	if err := s.parse(0); err != nil {
		return err
	}
	o.Comparison.Rate = o.Rate
	if err := checkRates(o.Comparison); err != nil {
		return err
	}
	o.Comparison.Rate *= 10 // a comparison hashes a row and does not write it
	b, err := m.openRebuild(ctx, s, m.OwnerVariable)
	if err != nil {
		return err
	}
	switch b.state.Phase {
	case rebuild.Done, rebuild.RolledBack:
		return fmt.Errorf("the rebuild of %s is %s: finish it to begin another", stamp(b.state.StartedAt), b.state.Phase)
	case rebuild.None:
		s.planf("%s", b.needs())
		if free == "" {
			return command.Usagef("--disk-free SIZE is missing: a rebuild needs %s. The monitoring of the database shows its free disk",
				megabytes(b.need.Total()))
		}
		if err := b.CheckDisk(ctx, b.need, free); err != nil {
			return err
		}
	default:
		s.planf("The rebuild of %s is %s, and goes on from there.", stamp(b.state.StartedAt), b.state.Phase)
	}
	bar := &phases{bar: s.progress(), grace: o.Comparison.Grace}
	var left int
	err = b.act(ctx, s, func(result *rebuildResult) (_ string, err error) {
		result.Rows, err = b.Run(ctx, s.actor, o, bar)
		bar.end(err)
		left = result.Rows.Left
		return fmt.Sprintf("The new copy is served: %d rows of the owner read, %d repaired before the switch, %d after it.\n"+
			"The copy of before is kept, as new as events make it: `rebuild rollback` serves it again,\n`rebuild finish` removes it.\n",
			result.Rows.Filled, result.Rows.Repaired, result.Rows.RepairedAfter), bar.explain(err)
	})
	if err == nil && left > 0 {
		return fmt.Errorf("%d rows of the new copy differ from their owner's after their repair: lines with \"is left\" name them", left)
	}
	return err
}

func (m ReadModel) rollback(ctx context.Context, s *invocation) error {
	b, err := m.parseRebuild(ctx, s)
	if err != nil {
		return err
	}
	if err := b.state.RollbackError(); err != nil {
		return err
	}
	s.planf("The copy of before the rebuild is served again, with all events since. What was wrong in it still is. " +
		"Both copies are read before the switch.")
	return b.act(ctx, s, func(*rebuildResult) (string, error) {
		return "The copy of before is served. `rebuild finish` removes the other one.\n", b.Rollback(ctx, s.actor)
	})
}

func (m ReadModel) finish(ctx context.Context, s *invocation) error {
	var unchecked bool
	s.flags.BoolVar(&unchecked, "unchecked", false, "")
	b, err := m.parseRebuild(ctx, s)
	if err != nil {
		return err
	}
	if err := b.state.FinishError(unchecked); err != nil {
		return err
	}
	end := "The rebuild is finished.\n"
	if b.state.Phase == rebuild.Filling || b.state.Phase == rebuild.Comparing {
		s.planf("The rebuild is not done: it is given up, and a `rebuild run` of it ends.")
		end = "The rebuild is given up. The read model that was served is served on.\n"
	}
	s.planf("The copy that is not served has %s, and is removed. There is no rollback afterwards.", megabytes(b.state.ShadowBytes))
	return b.act(ctx, s, func(*rebuildResult) (string, error) {
		return end, b.Finish(ctx, s.actor, unchecked)
	})
}

// parseRebuild parses a command that needs a confirmation, and opens its rebuild.
func (m ReadModel) parseRebuild(ctx context.Context, s *invocation) (rebuilding, error) {
	s.confirmFlags()
	if err := s.parse(0); err != nil {
		return rebuilding{}, err
	}
	return m.openRebuild(ctx, s, "")
}
