package operator

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/backlog"
)

// skipTimeout is longer than any wait for the last publish attempt.
const skipTimeout = 2 * time.Minute

// The notes on a skip for the operator.
const (
	leftMarker = "A marker without content takes its place: when it arrives, consumers repair themselves from the owner."
	leftHole   = "The broker refuses its marker, too, so that nothing takes its place: consumers lack this version " +
		"until the aggregate's next event shows the gap, and then repair themselves from the owner."
	isNewest = " It is the newest event of its aggregate: perhaps none follows."
)

func noteOn(p backlog.Plan) string {
	note := leftMarker
	if p.Marker {
		note = leftHole
	}
	if p.Newest {
		note += isNewest
	}
	return note
}

func retry(ctx context.Context, s *invocation) error {
	var f backlog.Filter
	s.auditFlags()
	all := s.flags.Bool("all", false, "")
	s.flags.StringVar(&f.Reason, "reason", "", "")
	s.flags.StringVar(&f.AggregateID, "aggregate", "", "")
	if err := s.parse(); err != nil {
		return err
	}
	switch {
	case *all == (len(s.ids) > 0), len(s.ids) > 1:
		return command.Usagef("want the id of one event, or --all")
	case !*all && f != (backlog.Filter{}):
		return command.Usagef("--reason and --aggregate belong to --all")
	}
	freed, err := s.retry(ctx, *all, f)
	if err != nil {
		return err
	}
	return s.print(map[string]any{"retried": freed}, func(w io.Writer) {
		fmt.Fprintf(w, "%d parked events are free to leave; what waits behind them follows in order.\n", freed)
	})
}

func (s *invocation) retry(ctx context.Context, all bool, f backlog.Filter) (freed int64, err error) {
	var id uuid.UUID
	if !all {
		if id, err = s.event(); err != nil {
			return 0, err
		}
	}
	b, done, err := s.openBacklog(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	if all {
		return b.Retry(ctx, s.actor, f)
	}
	return 1, b.RetryOne(ctx, s.actor, id)
}

func skip(ctx context.Context, s *invocation) error {
	s.confirmFlags()
	id, err := s.oneEvent()
	if err != nil {
		return err
	}
	b, done, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	defer done()
	plan, err := b.PlanSkip(ctx, id)
	if err != nil {
		return err
	}
	result := struct {
		backlog.Plan
		Skipped bool   `json:"skipped"`
		Note    string `json:"note"`
	}{Plan: plan, Note: noteOn(plan)}
	if !s.json {
		e := plan.Event
		fmt.Fprintf(s.Out, "%s version %d of %s/%s, parked because: %s\n", e.Type, e.Version, e.AggregateType, e.AggregateID, oneLine(e.Reason))
		fmt.Fprintf(s.Out, "Events that would follow it: %d. %s\n", plan.Blocked, result.Note)
	}
	if s.confirmed() {
		if plan.Wait > 0 {
			fmt.Fprintf(s.Err, "waiting %.0f s, until its last attempt can no longer land\n", plan.Wait)
		}
		ctx, cancel := context.WithTimeout(ctx, skipTimeout)
		defer cancel()
		if err := b.Skip(ctx, s.actor, id); err != nil {
			return err
		}
		result.Skipped = true
	}
	return s.print(result, func(w io.Writer) {
		if result.Skipped {
			fmt.Fprintln(w, "Skipped. The audit table keeps the event.")
		} else {
			fmt.Fprint(w, unchanged)
		}
	})
}

func purge(ctx context.Context, s *invocation) error {
	const week = 7 * 24 * time.Hour
	s.confirmFlags()
	age := s.flags.Duration("older-than", week, "")
	if err := s.parseIDs(0); err != nil {
		return err
	}
	if *age < 0 {
		return command.Usagef("--older-than %s: negative", *age)
	}
	b, done, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	defer done()
	var result struct {
		DryRun bool  `json:"dry_run"`
		Old    int64 `json:"old"`
		Purged int64 `json:"purged"`
	}
	if result.Old, err = b.PlanPurge(ctx, *age); err != nil {
		return err
	}
	if !s.json {
		fmt.Fprintf(s.Out, "Published more than %s ago, and not the newest of their aggregates: %d events.\n", *age, result.Old)
	}
	if result.DryRun = !s.confirmed(); !result.DryRun {
		if result.Purged, err = b.Purge(ctx, s.actor, *age); err != nil {
			return fmt.Errorf("after %d events: %w", result.Purged, err)
		}
	}
	return s.print(result, func(w io.Writer) {
		if result.DryRun {
			fmt.Fprint(w, unchanged)
		} else {
			fmt.Fprintf(w, "Removed %d events that were published more than %s ago.\n", result.Purged, *age)
		}
	})
}
