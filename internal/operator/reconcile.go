package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/reconcile"
)

const (
	reconcileRate = 20_000
	// maxListed bounds the rows that the result lists. The counts include all rows.
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
	// The first check shows whether there is anything to repair. A second check repairs.
	if flags.repair && s.yes && result.differing() > 0 {
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
	case (s.yes || f.acceptLosses) && !f.repair:
		return f, command.Usagef("--yes and --accept-losses belong to --repair")
	}
	if err := checkRates(f.Options); err != nil || !f.repair {
		return f, err
	}
	return f, s.signed()
}

// text prints the result for a person. planned says that --repair was given without --yes.
func (r *reconciliation) text(w io.Writer, planned bool) {
	if len(r.Rows) > 0 {
		fmt.Fprintln(w, "TYPE\tID\tKIND\tVERSION\tOWNER'S VERSION")
		for _, row := range r.Rows {
			version, owners := fmt.Sprint(row.Version), fmt.Sprint(row.OwnerVersion)
			if row.Kind == reconcile.Counter {
				version, owners = "-", "-" // a counter has no version, and no owner
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.Type, row.ID, row.Kind, version, owners)
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
	switch {
	case o.Rate < 0:
		return command.Usagef("--rate %d: negative", o.Rate)
	case o.Grace < time.Second:
		return command.Usagef("--grace %s: less than 1s", o.Grace)
	}
	return nil
}
