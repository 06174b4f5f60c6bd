package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/backlog"
)

// skipTimeout bounds a skip. It is longer than any wait of a skip for the event's last publish attempt.
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
	s.auditFlags()
	if err := s.parseSelection("the id of one event", 1); err != nil {
		return err
	}
	result, err := s.retry(ctx)
	if err != nil {
		return err
	}
	err = s.print(result, func(w io.Writer) {
		if result == (backlog.Retried{}) {
			fmt.Fprintln(w, "No parked event matches; `outbox status` counts the parked events.")
			return
		}
		fmt.Fprintf(w, "%d parked events are free to leave; the events behind them follow in order.\n", result.Freed)
	})
	if err == nil && result.Locked > 0 {
		err = fmt.Errorf("another session, perhaps another retry, had locked %d parked events: run the command again", result.Locked)
	}
	return err
}

func (s *invocation) retry(ctx context.Context) (result backlog.Retried, err error) {
	var id uuid.UUID
	if !s.all {
		if id, err = s.event(); err != nil {
			return result, err
		}
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return result, err
	}
	if !s.all {
		return backlog.Retried{Freed: 1}, b.RetryOne(ctx, s.actor, id)
	}
	result, err = b.Retry(ctx, s.actor, backlog.Filter{AggregateID: s.aggregate, Reason: s.reason})
	if err != nil && result.Freed > 0 { // by batches that are committed
		err = fmt.Errorf("after %d events, which are free to leave: %w", result.Freed, err)
	}
	return result, err
}

func skip(ctx context.Context, s *invocation) error {
	s.confirmFlags()
	id, err := s.oneEvent()
	if err != nil {
		return err
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	plan, err := b.PlanSkip(ctx, id)
	if err != nil {
		return err
	}
	result := struct {
		backlog.Plan
		DryRun  bool   `json:"-"` // the JSON has the field skipped instead
		Skipped bool   `json:"skipped"`
		Note    string `json:"note"`
	}{Plan: plan, Note: noteOn(plan)}
	e := plan.Event
	s.planf("%s version %d of %s/%s, parked because: %s", e.Type, e.Version, e.AggregateType, e.AggregateID, oneLine(e.Reason))
	s.planf("Events that would follow it: %d. %s", plan.Blocked, result.Note)
	return s.act(&result, &result.DryRun, func() (string, error) {
		if plan.Wait > 0 {
			fmt.Fprintf(s.Err, "waiting %.0f s, until its last attempt can no longer land\n", plan.Wait)
		}
		ctx, cancel := context.WithTimeout(ctx, skipTimeout)
		defer cancel()
		err := b.Skip(ctx, s.actor, id)
		if err != nil && !errors.Is(err, backlog.ErrNotParked) && !errors.Is(err, backlog.ErrUnknown) { // the answer to the COMMIT may be lost
			err = fmt.Errorf("`outbox show %s` says whether the event was skipped: %w", id, err)
		}
		result.Skipped = err == nil
		return "Skipped. The audit table keeps the event.\n", err
	})
}

func purge(ctx context.Context, s *invocation) error {
	const week = 7 * 24 * time.Hour
	s.confirmFlags()
	age := s.flags.Duration("older-than", week, "")
	if err := s.parse(0); err != nil {
		return err
	}
	if *age < 0 {
		return command.Usagef("--older-than %s: negative", *age)
	}
	b, err := s.openBacklog(ctx)
	if err != nil {
		return err
	}
	var result struct {
		DryRun bool  `json:"dry_run"`
		Old    int64 `json:"old"`
		Purged int64 `json:"purged"`
	}
	if !s.yes { // a count reads the whole table once more
		if result.Old, err = b.PlanPurge(ctx, *age); err != nil {
			return err
		}
		s.planf("Published more than %s ago, and not the newest of their aggregates: %d events.", *age, result.Old)
	}
	return s.act(&result, &result.DryRun, func() (_ string, err error) {
		result.Purged, err = b.Purge(ctx, s.actor, *age)
		result.Old = result.Purged
		if err != nil {
			return "", fmt.Errorf("after %d events: %w", result.Purged, err)
		}
		return fmt.Sprintf("Removed %d events that were published more than %s ago.\n", result.Purged, *age), nil
	})
}
