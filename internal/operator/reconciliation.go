package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// reconciliation is the result of the tool `reconcile`.
type reconciliation struct {
	DryRun bool `json:"dry_run"`
	// Owner is the address of the service whose rows are taken for right.
	Owner string `json:"owner"`
	// RowsChecked counts the owner's rows, and the counters. It leaves out rows that only the read model has.
	RowsChecked int64                  `json:"rows_checked"`
	Differing   map[reconcile.Kind]int `json:"differing"`
	Unsettled   int                    `json:"unsettled"`
	Repaired    int                    `json:"repaired"`
	// Refused counts rows that differ and were not repaired, because the owner may be the wrong
	// owner. The sign of a wrong owner is that many rows of a type are extra or ahead.
	Refused int `json:"refused"`
	// Remaining counts the rows that differ, after the repair if there was one.
	Remaining int            `json:"remaining"`
	Rows      []differentRow `json:"rows"`
	Truncated bool           `json:"rows_truncated"`
}

// differentRow is a row that differs, or that differed before its repair.
type differentRow struct {
	Type         string         `json:"aggregate_type"`
	ID           string         `json:"aggregate_id"`
	Kind         reconcile.Kind `json:"kind"`
	Version      int64          `json:"version"`
	OwnerVersion int64          `json:"owner_version"`
}

type comparing struct {
	flags reconcileFlags
	owner string
	actor audit.Actor
	bar   progress
	// checked are the checks, each with its last result.
	checked []checking
}

func newComparing(s *invocation, flags reconcileFlags, checks []reconcile.Checker) *comparing {
	r := &comparing{flags: flags, owner: s.ownerAddr, actor: s.actor, bar: s.progress()}
	for _, c := range checks {
		r.checked = append(r.checked, checking{checker: c})
	}
	return r
}

// check makes all checks. It repairs nothing, because only a whole check shows whether the owner
// may be the wrong owner.
func (r *comparing) check(ctx context.Context) error {
	for i := range r.checked {
		if err := r.one(ctx, &r.checked[i], false); err != nil {
			return err
		}
	}
	return nil
}

// repair repeats the checks that have found differences, and repairs the rows. If the losses of one
// type are doubtful, no row of any type is repaired, because all types have the same owner.
// Counters have no owner. The counters come last, and are checked again after rows were repaired,
// because a repair changes them.
func (r *comparing) repair(ctx context.Context) error {
	doubtful := !r.flags.acceptLosses && slices.ContainsFunc(r.checked, func(c checking) bool { return c.doubtful() })
	repaired := false
	for i := range r.checked {
		c := &r.checked[i]
		_, counts := c.checker.(reconcile.Recount)
		switch {
		case c.differing() == 0 && (!counts || !repaired):
			continue
		case doubtful && !counts:
			c.Refused = c.differing()
			continue
		}
		if err := r.one(ctx, c, true); err != nil {
			return err
		}
		repaired = true
	}
	return nil
}

// one makes one check from the first row on.
func (r *comparing) one(ctx context.Context, c *checking, repairing bool) error {
	*c = checking{comparing: r, checker: c.checker, repairing: repairing}
	c.Differing = map[reconcile.Kind]int{}
	rows, err := c.checker.Estimate(ctx)
	if err != nil {
		return err
	}
	r.bar.begin(c.checker.Type(), rows)
	c.Unsettled, err = c.checker.Check(ctx, r.flags.Options, c)
	r.bar.end(err)
	if err == nil {
		err = c.conclude(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s, after %d rows and %d repairs: %w", c.checker.Type(), c.RowsChecked, c.Repaired, err)
	}
	return nil
}

// result is the sum of the checks.
func (r *comparing) result(dryRun bool) *reconciliation {
	sum := &reconciliation{DryRun: dryRun, Owner: r.owner, Differing: map[reconcile.Kind]int{}, Rows: []differentRow{}}
	for _, c := range r.checked {
		for kind, n := range c.Differing {
			sum.Differing[kind] += n
		}
		sum.RowsChecked, sum.Unsettled = sum.RowsChecked+c.RowsChecked, sum.Unsettled+c.Unsettled
		sum.Repaired, sum.Refused, sum.Remaining = sum.Repaired+c.Repaired, sum.Refused+c.Refused, sum.Remaining+c.Remaining
		sum.Rows = append(sum.Rows, c.Rows...)
	}
	if sum.Truncated = sum.differing() > maxListed; sum.Truncated {
		sum.Rows = sum.Rows[:maxListed]
	}
	return sum
}

// checking is the reconcile.Observer of one check, and its result.
type checking struct {
	*comparing
	reconciliation

	checker   reconcile.Checker
	repairing bool
	// lost has the rows that the owner does not have or has lost, up to maxListed.
	lost []reconcile.Difference
	// losses is the number of all rows that the owner does not have or has lost.
	losses int
}

// Passed shows the progress.
func (c *checking) Passed(_ context.Context, _ string, rows int64) error {
	c.RowsChecked += rows
	c.bar.add(rows)
	return nil
}

// Waits says that the check waits, and for how many rows.
func (c *checking) Waits(_ context.Context, rows int) {
	c.bar.waits(c.checker.Type(), rows, c.flags.Grace)
}

// Retries says that the check goes on after an error.
func (c *checking) Retries(_ context.Context, err error) {
	c.bar.sayf("%s: %v, trying again", c.checker.Type(), err)
}

// Differ counts the rows, and repairs them if this check repairs. It leaves the rows
// that the owner lacks to conclude, because only the whole check shows whether they are too many.
func (c *checking) Differ(ctx context.Context, found []reconcile.Difference) error {
	var others []reconcile.Difference
	for _, d := range found {
		c.Differing[d.Kind]++
		if len(c.Rows) < maxListed {
			c.Rows = append(c.Rows, differentRow{c.checker.Type(), d.ID, d.Kind, d.Reader.Version, d.Owner.Version})
		}
		if !d.Kind.Lost() {
			others = append(others, d)
			continue
		}
		c.losses++
		if len(c.lost) < maxListed {
			c.lost = append(c.lost, d)
		}
	}
	return c.repairRows(ctx, others)
}

// doubtful reports whether the owner may be the wrong owner (see reconcile.Doubtful). All rows of a
// wrong owner are wrong, so then nothing is repaired.
func (c *checking) doubtful() bool {
	read := c.RowsChecked - int64(c.Differing[reconcile.Missing]) + int64(c.Differing[reconcile.Extra])
	return reconcile.Doubtful(c.losses, c.RowsChecked, read)
}

// conclude repairs the rows that the owner does not have or has lost. If these losses are doubtful,
// it repairs the rows only with --accept-losses, and otherwise counts the rows as refused.
func (c *checking) conclude(ctx context.Context) error {
	if c.doubtful() && !c.flags.acceptLosses {
		c.Remaining += c.losses
		c.Refused = c.differing()
		if c.repairing { // the other rows are repaired, because the check before found fewer losses
			c.Refused = c.losses
		}
		return nil
	}
	c.Remaining += c.losses - len(c.lost)
	return c.repairRows(ctx, c.lost)
}

func (c *checking) repairRows(ctx context.Context, found []reconcile.Difference) error {
	if !c.repairing || len(found) == 0 {
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
	for _, kind := range reconcile.Kinds() {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, r.Differing[kind]))
	}
	lines = append(lines, "The owner is the service at "+r.Owner+".",
		fmt.Sprintf("%d rows checked by the owner's count, %d differ: %s.", r.RowsChecked, r.differing(), strings.Join(kinds, ", ")))
	if !r.DryRun {
		lines = append(lines, fmt.Sprintf("%d repaired, %d differ still.", r.Repaired, r.Remaining))
	}
	if r.Refused > 0 {
		lines = append(lines, fmt.Sprintf("%d rows are left: so many are extra and ahead that the owner may be the wrong one, "+
			"or may have lost rows itself. They are repaired with --accept-losses only.", r.Refused))
	}
	if r.Unsettled > 0 {
		lines = append(lines, fmt.Sprintf("%d rows could not be decided: they changed meanwhile, or the owner's answers are from before them, "+
			"or their count takes too long.", r.Unsettled))
	}
	return lines
}

// verdict returns nil if no row differs any more. Rows that differ or could not be decided are
// an error.
func (r *reconciliation) verdict() error {
	switch {
	case r.Remaining+r.Unsettled == 0:
		return nil
	case r.Unsettled == 0:
		return fmt.Errorf("%d rows differ from their owner's", r.Remaining)
	}
	return fmt.Errorf("%d rows differ from their owner's, and %d could not be decided", r.Remaining, r.Unsettled)
}
