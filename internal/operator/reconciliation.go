package operator

import (
	"context"
	"fmt"
	"strings"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

const (
	// fewLosses rows that the owner does not have, or has lost, are repaired in any case, and
	// more if they are at most one of lossShare rows.
	fewLosses = 100
	lossShare = 20
)

// reconciliation is the result of the tool `reconcile`.
type reconciliation struct {
	DryRun      bool                   `json:"dry_run"`
	RowsChecked int64                  `json:"rows_checked"`
	Differing   map[reconcile.Kind]int `json:"differing"`
	Unsettled   int                    `json:"unsettled"`
	Repaired    int                    `json:"repaired"`
	// Refused rows are extra or ahead, and so many that the owner may be the wrong one.
	Refused int `json:"refused"`
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
		flags: flags, actor: s.actor, bar: s.progress(),
	}
}

func (r *reconciliation) check(ctx context.Context, checks []reconcile.Checker) error {
	for _, c := range checks {
		rows, err := c.Estimate(ctx)
		if err != nil {
			return err
		}
		r.bar.begin(c.Type(), rows)
		seen := &checking{reconciliation: r, checker: c}
		unsettled, err := c.Check(ctx, r.flags.Options, seen)
		r.Unsettled += unsettled
		r.bar.end(err)
		if err == nil {
			err = seen.repairLosses(ctx)
		}
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
	// rows is the number of the owner's.
	rows int64
	// lost are the rows that the owner does not have or has lost, up to maxListed of all.
	lost   []reconcile.Difference
	losses int
}

// Passed shows the progress.
func (c *checking) Passed(_ context.Context, _ string, rows int64) error {
	c.rows += rows
	c.RowsChecked += rows
	c.bar.add(rows)
	return nil
}

// Differ counts the rows, and repairs them unless it is a dry run. The repair of losses waits
// for the end of the check, which shows how many they are.
func (c *checking) Differ(ctx context.Context, found []reconcile.Difference) error {
	var others []reconcile.Difference
	for _, d := range found {
		c.Differing[d.Kind]++
		if c.Truncated = len(c.Rows) == maxListed; !c.Truncated {
			c.Rows = append(c.Rows, differentRow{c.checker.Type(), d.ID, d.Kind, d.Reader.Version, d.Owner.Version})
		}
		if d.Kind != reconcile.Extra && d.Kind != reconcile.Ahead {
			others = append(others, d)
			continue
		}
		c.losses++
		if len(c.lost) < maxListed {
			c.lost = append(c.lost, d)
		}
	}
	return c.repair(ctx, others)
}

// repairLosses repairs the rows that the owner does not have or has lost, but not if so many
// are a sign that it is the wrong owner, or an empty one: nothing is lost without a word.
func (c *checking) repairLosses(ctx context.Context) error {
	doubtful := c.losses > 0 && c.rows == 0 || int64(c.losses) > max(fewLosses, c.rows/lossShare)
	if doubtful && !c.flags.acceptLosses {
		c.Refused += c.losses
		c.Remaining += c.losses
		return nil
	}
	c.Remaining += c.losses - len(c.lost)
	return c.repair(ctx, c.lost)
}

func (c *checking) repair(ctx context.Context, found []reconcile.Difference) error {
	if c.DryRun || len(found) == 0 {
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
	if r.Refused > 0 {
		lines = append(lines, fmt.Sprintf("%d extra and ahead rows are so many that the owner may be the wrong one, "+
			"or may have lost rows itself: "+
			"they are repaired with --accept-losses only.", r.Refused))
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
