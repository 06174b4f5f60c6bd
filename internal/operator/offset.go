package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/checkpoint"
)

func (m ReadModel) offsets(s *invocation) *checkpoint.Store {
	return checkpoint.New(s.db, m.Offsets, s.actor.By, slog.New(slog.DiscardHandler))
}

func (m ReadModel) showOffset(ctx context.Context, s *invocation) error {
	if err := s.parse(0); err != nil {
		return err
	}
	if err := s.connect(ctx, needs{}); err != nil {
		return err
	}
	at, err := m.offsets(s).Load(ctx)
	if err != nil {
		return err
	}
	rows, err := m.offsets(s).Rows(ctx)
	if err != nil {
		return err
	}
	return s.print(map[string]any{"position": at, "offsets": rows}, func(w io.Writer) {
		if at.UpdatedAt.IsZero() {
			fmt.Fprintf(w, "%s has saved no offset yet.\n", at.Group)
			return
		}
		fmt.Fprintf(w, "group\t%s of %s\n", at.Group, at.Subscription)
		fmt.Fprintf(w, "safe position\t%s\n", stamp(at.SafePosition))
		if at.OldestHeld != nil {
			fmt.Fprintf(w, "oldest held event\t%s\n", stamp(*at.OldestHeld))
		}
		fmt.Fprintln(w, "INSTANCE\tPUBLISHED\tMESSAGE\tLAG\tSAVED\tBY")
		for _, r := range rows {
			lag := (time.Duration(r.LagMillis) * time.Millisecond).Round(time.Millisecond)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Instance, stamp(r.PublishTime), r.MessageID, lag, stamp(r.UpdatedAt), r.UpdatedBy)
		}
	})
}

// resetPlan is the plan and the result of a reset.
type resetPlan struct {
	DryRun bool                `json:"dry_run"`
	Before checkpoint.Position `json:"before"`
	To     time.Time           `json:"to"`
	// Window is how far back the subscription can replay messages.
	Window string `json:"replayable"`
	// Discards is true if the reset may lose messages that were not applied.
	Discards bool `json:"discards"`
}

func (m ReadModel) resetOffset(ctx context.Context, s *invocation) error {
	var to string
	var discard bool
	s.flags.StringVar(&to, "to", "", "")
	s.flags.BoolVar(&discard, "discard-backlog", false, "")
	s.confirmFlags()
	if err := s.parse(0); err != nil {
		return err
	}
	at, err := parsePosition(to)
	if err != nil {
		return err
	}
	if err := s.connect(ctx, needs{pubsub: true}); err != nil {
		return err
	}
	plan, err := m.planReset(ctx, s, at, discard)
	if err != nil {
		return err
	}
	plan.describe(s)
	return s.act(&plan, &plan.DryRun, func() (string, error) {
		return fmt.Sprintf("%s is at %s.\n", m.Offsets.Subscription, stamp(plan.To)),
			m.offsets(s).Reset(ctx, s.pubsub, plan.To, discard || at.all, s.actor)
	})
}

// planReset returns the plan of a reset. It refuses a reset that does less, or loses more, than
// the flags say.
func (m ReadModel) planReset(ctx context.Context, s *invocation, at position, discard bool) (p resetPlan, err error) {
	retention, err := checkpoint.ReadRetention(ctx, s.pubsub, m.Offsets.Subscription)
	if err != nil {
		return p, err
	}
	before, err := m.offsets(s).Load(ctx)
	if err != nil {
		return p, err
	}
	now, err := m.offsets(s).Now(ctx)
	if err != nil {
		return p, err
	}
	p = resetPlan{Before: before, To: at.time(now, retention), Window: retention.Replay.String()}
	p.Discards = !at.all && p.To.After(before.SafePosition)
	return p, p.check(now, retention, discard, at.all)
}

// position is the value of --to: a time, all messages, or none of the present messages.
type position struct {
	at          time.Time
	all, latest bool
}

func parsePosition(text string) (p position, err error) {
	switch text {
	case "":
		return p, command.Usagef("--to is missing: a time, earliest or latest")
	case "earliest":
		return position{all: true}, nil
	case "latest":
		return position{latest: true}, nil
	}
	if p.at, err = time.Parse(time.RFC3339, text); err != nil {
		return p, command.Usagef("--to %q: want a time such as 2026-01-02T15:04:05Z, earliest or latest", text)
	}
	return p, nil
}

func (p position) time(now time.Time, r checkpoint.Retention) time.Time {
	switch {
	case p.all:
		return now.Add(-r.Oldest)
	case p.latest:
		return now
	}
	return p.at
}

// check refuses a reset that does less, or loses more, than the flags say.
func (p resetPlan) check(now time.Time, r checkpoint.Retention, discard, all bool) error {
	switch oldest := now.Add(-r.Replay); {
	case p.To.After(now):
		return fmt.Errorf("%s is in the future: messages that are published until then would be lost", stamp(p.To))
	case r.Replay == 0 && !p.Discards:
		return errors.New("the subscription keeps no acknowledged messages: a seek back replays nothing")
	case p.To.Before(oldest) && !all:
		return fmt.Errorf("%s is before %s: the subscription keeps messages for %s. --to earliest replays all of them",
			stamp(p.To), stamp(oldest), r.Replay)
	case p.Discards && !discard:
		return p.refuseDiscards(oldest)
	}
	return nil
}

// refuseDiscards returns the error of a reset to a time after the safe position. The error names a
// reset that loses nothing. If no offset is saved, or if all messages are newer than the safe
// position, the error names a reset to earliest.
func (p resetPlan) refuseDiscards(oldest time.Time) error {
	const waiting = "older messages may wait that were not applied: add --discard-backlog to give them up, or reset with --to "
	switch safe := p.Before.SafePosition; {
	case p.Before.UpdatedAt.IsZero():
		return errors.New("the group has saved no offset: " + waiting + "earliest")
	case safe.Before(oldest):
		return errors.New("the group's safe position is older than all messages of the subscription: " + waiting + "earliest")
	default:
		return fmt.Errorf("%s is after the safe position: "+waiting+"%s", stamp(p.To), stamp(safe))
	}
}

func (p resetPlan) describe(s *invocation) {
	if p.Before.UpdatedAt.IsZero() {
		s.planf("The group has saved no offset.")
	} else {
		s.planf("The group's safe position is %s, its newest offset %s.", stamp(p.Before.SafePosition), stamp(p.Before.PublishTime))
	}
	if p.Discards {
		s.planf("A seek to %s GIVES UP all older messages that were not applied.", stamp(p.To))
	}
	s.planf("A seek to %s replays messages from then on. The subscription reaches %s back.", stamp(p.To), p.Window)
}
