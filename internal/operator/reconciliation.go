package operator

import (
	"context"
	"fmt"
	"strings"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// reconciliation is the result of the tool `reconcile`.
type reconciliation struct {
	DryRun      bool                   `json:"dry_run"`
	RowsChecked int64                  `json:"rows_checked"`
	Differing   map[reconcile.Kind]int `json:"differing"`
	Unsettled   int                    `json:"unsettled"`
	Repaired    int                    `json:"repaired"`
	// Remaining rows differ, after the repair if there was one.
	Remaining int            `json:"remaining"`
	Rows      []differentRow `json:"rows"`
	Truncated bool           `json:"rows_truncated"`

	flags reconcileFlags
	actor audit.Actor
	bar   progress
}

// differentRow is a row that differs, or did before its repair.
type differentRow struct {
	Type         string         `json:"aggregate_type"`
	ID           string         `json:"aggregate_id"`
	Kind         reconcile.Kind `json:"kind"`
	Version      int64          `json:"version"`
	OwnerVersion int64          `json:"owner_version"`
}

func newReconciliation(s *invocation, flags reconcileFlags) *reconciliation {
	return &reconciliation{
		DryRun: !flags.repair || !s.yes, Differing: map[reconcile.Kind]int{}, Rows: []differentRow{},
		flags: flags, actor: s.actor, bar: progress{to: s.Err, terminal: s.In != nil},
	}
}

func (r *reconciliation) check(ctx context.Context, checks []reconcile.Checker) error {
	for _, c := range checks {
		rows, err := c.Estimate(ctx)
		if err != nil {
			return err
		}
		r.bar.begin(c.Type(), rows)
		unsettled, err := c.Check(ctx, r.flags.Options, &checking{r, c})
		r.Unsettled += unsettled
		r.bar.end()
		if err != nil {
			return fmt.Errorf("%s, after %d rows and %d repairs: %w", c.Type(), r.RowsChecked, r.Repaired, err)
		}
	}
	return nil
}

// checking is the reconcile.Observer of one check.
type checking struct {
	*reconciliation

	checker reconcile.Checker
}

// Passed shows the progress.
func (c *checking) Passed(_ context.Context, _ string, rows int64) error {
	c.RowsChecked += rows
	c.bar.add(rows)
	return nil
}

// Differ counts the rows, and repairs them unless it is a dry run.
func (c *checking) Differ(ctx context.Context, found []reconcile.Difference) error {
	for _, d := range found {
		c.Differing[d.Kind]++
		if c.Truncated = len(c.Rows) == maxListed; !c.Truncated {
			c.Rows = append(c.Rows, differentRow{c.checker.Type(), d.ID, d.Kind, d.Reader.Version, d.Owner.Version})
		}
	}
	if c.DryRun {
		c.Remaining += len(found)
		return nil
	}
	repaired, err := c.checker.Repair(ctx, c.actor, found)
	c.Repaired += len(repaired)
	if err != nil {
		return err
	}
	left, err := c.checker.Still(ctx, found)
	c.Remaining += len(left)
	return err
}

func (r *reconciliation) differing() (n int) {
	for _, rows := range r.Differing {
		n += rows
	}
	return n
}

// lines are the counts for a person.
func (r *reconciliation) lines() (lines []string) {
	var kinds []string
	for _, kind := range reconcile.Kinds {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Differing[kind]))
	}
	lines = append(lines, fmt.Sprintf("%d rows checked, %d differ: %s.", r.RowsChecked, r.differing(), strings.Join(kinds, ", ")))
	if !r.DryRun {
		lines = append(lines, fmt.Sprintf("%d repaired, %d differ still.", r.Repaired, r.Remaining))
	}
	if r.Unsettled > 0 {
		lines = append(lines, fmt.Sprintf("%d rows could not be decided: they changed meanwhile, or the owner's answers are from before them, "+
			"or their count takes too long.", r.Unsettled))
	}
	return lines
}

// verdict is the error of a check that did not show that no row differs any more.
func (r *reconciliation) verdict() error {
	switch {
	case r.Remaining+r.Unsettled == 0:
		return nil
	case r.Unsettled == 0:
		return fmt.Errorf("%d rows differ from their owner's", r.Remaining)
	}
	return fmt.Errorf("%d rows differ from their owner's, and %d could not be decided", r.Remaining, r.Unsettled)
}
