package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/reconcile"
)

const reconcileUsage = `reconcile compares the read model with its owner, and repairs the rows that differ.

usage: reconcile [flags]

flags:
  --type TYPE         only this type of aggregate, such as video, or video_counters
  --repair            give the rows that differ their owner's state
    --yes             do it; without, and without a terminal to ask at, only show them
    --by NAME         who does it ($USER), for the audit table; a job needs it
    --why TEXT        why; required to repair
    --accept-losses   repair however many rows are extra or ahead
  --rate N            at most N rows per second on either side (20000); 0 is no limit
  --grace TIME        how long an event may be on its way before its row differs (30s)
  --json              one JSON object on stdout

A row that differs is one of
  changed   the owner has other content in the same version
  missing   the owner has a row, or a tombstone, that the read model lacks
  extra     the read model has a row that the owner does not know
  behind    the read model has an older version, and no event has come for the grace period
  ahead     the read model has a version, or an epoch, that the owner has not reached
  counter   the counters of the video are not the sums over the read model's engagements

Events in flight are no difference. Reads and events go on meanwhile. A repair writes a row
only if it is still where it was seen to differ; an extra row becomes a tombstone. The audit
table keeps the rows before, and what was added to counters. --repair checks all rows first
and, where some differ, repairs them in a second check: extra and ahead rows at its end, 10,000
of a type at most. If those are more than 100, and 5 % of the rows of either side, or if the
owner has no rows, no row of any type is repaired: is it the right owner? --accept-losses
repairs them. An ahead row of a later epoch than the owner's is not repaired:
begin an epoch (video epoch bump). The command may be cut off at any time, and repeated.

environment: DATABASE_URL, VIDEO_SERVICE_ADDR as of serve

exit codes: 0 no row differs, or none any more; 1 rows differ or could not be decided, or failed; 2 wrong usage
`

const (
	reconcileRate = 20_000
	// maxListed bounds the rows in the result; the counts have all.
	maxListed = 10_000
)

// reconcileFlags are the flags that only this tool has.
type reconcileFlags struct {
	only                 string
	repair, acceptLosses bool
	reconcile.Options
}

func (m ReadModel) reconcile(ctx context.Context, s *invocation) error {
	flags, err := s.reconcileFlags()
	if err != nil {
		return err
	}
	if err := s.connect(ctx, needs{owner: m.OwnerVariable}); err != nil {
		return err
	}
	checks, err := ofType(m.Projections(s.db, s.owner).Checks(), flags.only)
	if err != nil {
		return err
	}
	c := newComparing(s, flags, checks)
	if err := c.check(ctx); err != nil {
		return err
	}
	result := c.result(!flags.repair || !s.yes)
	// The first check decides, and so does a person at the terminal. A second one repairs.
	if flags.repair && result.differing() > 0 && s.confirmedFor(result) {
		c.actor = s.actor
		if err := c.repair(ctx); err != nil {
			return err
		}
		result = c.result(false)
	}
	if err := s.print(result, func(w io.Writer) { result.text(w, flags.repair && result.DryRun) }); err != nil {
		return err
	}
	return result.verdict()
}

// confirmedFor is confirmed for a repair of what a check has found.
func (s *invocation) confirmedFor(found *reconciliation) bool {
	if !s.yes {
		for _, line := range found.lines() {
			s.planf("%s", line)
		}
	}
	return s.confirmed()
}

func (s *invocation) reconcileFlags() (f reconcileFlags, err error) {
	s.confirmFlags()
	s.flags.StringVar(&f.only, "type", "", "")
	s.flags.BoolVar(&f.repair, "repair", false, "")
	s.flags.BoolVar(&f.acceptLosses, "accept-losses", false, "")
	s.flags.IntVar(&f.Rate, "rate", reconcileRate, "")
	s.flags.DurationVar(&f.Grace, "grace", reconcile.DefaultGrace, "")
	err = s.parseFlags()
	switch {
	case err != nil:
		return f, err
	case len(s.ids) > 0:
		return f, command.Usagef("unexpected argument %q", s.ids[0])
	case checkRates(f.Options) != nil:
		return f, checkRates(f.Options)
	case (s.yes || f.acceptLosses) && !f.repair:
		return f, command.Usagef("--yes and --accept-losses belong to --repair")
	case !f.repair:
		return f, nil
	}
	return f, s.signed()
}

// text is the result for a person. planned says that it could be repaired.
func (r *reconciliation) text(w io.Writer, planned bool) {
	if len(r.Rows) > 0 {
		fmt.Fprintln(w, "TYPE\tID\tKIND\tVERSION\tOWNER'S VERSION")
		for _, row := range r.Rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", row.Type, row.ID, row.Kind, row.Version, row.OwnerVersion)
		}
		if r.Truncated {
			fmt.Fprintln(w, "There are more.")
		}
	}
	for _, line := range r.lines() {
		fmt.Fprintln(w, line)
	}
	if planned {
		fmt.Fprint(w, unchanged)
	}
}

func checkRates(o reconcile.Options) error {
	if o.Rate < 0 || o.Grace < time.Second {
		return command.Usagef("--rate must not be negative, and --grace be 1s at least")
	}
	return nil
}
