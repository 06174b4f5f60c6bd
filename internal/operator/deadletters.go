package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

// workTime bounds the work on dead letters. It is well below the time for which a Batch leases its
// messages.
const workTime = 8 * time.Minute

// subscriptionFlag declares the flag that selects one subscription.
func (s *invocation) subscriptionFlag() { s.flags.StringVar(&s.subscription, "subscription", "", "") }

// deadLetters connects, and leases the dead letters of the selected subscriptions until the
// subcommand ends. Without --subscription it selects all subscriptions of the service.
func (m ReadModel) deadLetters(ctx context.Context, s *invocation, n needs) (*deadletter.Batch, error) {
	subscriptions := m.Subscriptions
	if s.subscription != "" {
		if !slices.Contains(subscriptions, s.subscription) {
			return nil, command.Usagef("--subscription %s: want one of %s", s.subscription, strings.Join(subscriptions, ", "))
		}
		subscriptions = []string{s.subscription}
	}
	n.pubsub = true
	if err := s.connect(ctx, n); err != nil {
		return nil, err
	}
	batch, err := deadletter.New(s.db, s.pubsub, m.Projections(s.db, s.owner).Handler(), subscriptions...).Collect(ctx)
	if err == nil {
		s.atEnd(func() error { return batch.Release(ctx) })
	}
	return batch, err
}

func (m ReadModel) listDeadLetters(ctx context.Context, s *invocation) error {
	s.filterFlags()
	s.subscriptionFlag()
	limit := s.flags.Int("limit", shownLetters, "")
	if err := s.parse(0); err != nil {
		return err
	}
	if *limit < 1 {
		return command.Usagef("--limit %d: want at least 1", *limit)
	}
	batch, err := m.deadLetters(ctx, s, needs{})
	if err != nil {
		return err
	}
	letters, unread := s.filtered(batch.Letters), s.filtered(batch.Unread)
	return s.print(map[string]any{"dead_letters": letters, "unread": unread, "partial": batch.Partial}, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tAGGREGATE\tVERSION\tTYPE\tSTATUS\tATTEMPTS\tSINCE\tSUBSCRIPTION\tMESSAGE\tREASON")
		printLetters(w, slices.Concat(letters, marked(unread)), *limit)
		if batch.Partial {
			fmt.Fprintln(w, moreLetters)
		}
		if slices.ContainsFunc(letters, func(l deadletter.Letter) bool { return l.MessageID == "" }) {
			fmt.Fprintln(w, "A message that is gone has expired, or another command holds it. A command that was killed holds")
			fmt.Fprintln(w, "its messages for ten minutes; until then more dead letters may be missing from this list.")
		}
	})
}

func (m ReadModel) showDeadLetter(ctx context.Context, s *invocation) error {
	s.subscriptionFlag()
	if err := s.parse(1); err != nil {
		return err
	}
	batch, err := m.deadLetters(ctx, s, needs{})
	if err != nil {
		return err
	}
	out := struct {
		Letter     *deadletter.Letter `json:"dead_letter"`
		Attributes map[string]string  `json:"attributes,omitempty"`
		Payload    []byte             `json:"payload,omitempty"`
		Actions    []audit.Entry      `json:"actions"`
	}{}
	letters, err := s.named(batch)
	if err == nil {
		out.Letter = &letters[0]
		out.Payload, out.Attributes = batch.Content(letters[0])
	}
	// A settled dead letter has left, but its actions are in the audit table.
	if id, invalid := uuid.Parse(s.ids[0]); invalid == nil {
		var historyErr error
		if out.Actions, historyErr = audit.History(ctx, s.db, id); historyErr != nil {
			return historyErr
		}
	}
	if err != nil && len(out.Actions) == 0 {
		return err
	}
	return s.print(out, func(w io.Writer) {
		if out.Letter != nil {
			printLetter(w, *out.Letter)
			fmt.Fprintf(w, "reason\t%s\n", out.Letter.Reason)
			for _, name := range slices.Sorted(maps.Keys(out.Attributes)) {
				fmt.Fprintf(w, "%s\t%s\n", name, out.Attributes[name])
			}
			fmt.Fprintf(w, "payload\t%d bytes (--json has them in base64)\n", len(out.Payload))
		}
		printActions(w, out.Actions)
	})
}

// chosen returns the dead letters that the command line selects, in the order of batch.
func (s *invocation) chosen(batch *deadletter.Batch) ([]deadletter.Letter, error) {
	if s.all {
		return s.filtered(batch.Letters), nil
	}
	return s.named(batch)
}

// filtered returns the dead letters that the flags' filter selects.
func (s *invocation) filtered(letters []deadletter.Letter) []deadletter.Letter {
	chosen := []deadletter.Letter{} // not null in JSON
	for _, l := range letters {
		if strings.Contains(l.Reason, s.reason) && (s.aggregate == "" || s.aggregate == l.AggregateID) {
			chosen = append(chosen, l)
		}
	}
	return chosen
}

// named returns the dead letters that the command line names, in the order of batch. A name that
// several dead letters share is an error.
func (s *invocation) named(batch *deadletter.Batch) ([]deadletter.Letter, error) {
	var chosen []deadletter.Letter
	found := map[string]int{}
	for _, l := range batch.Letters {
		if slices.ContainsFunc(s.ids, func(id string) bool { return id == l.ID() || id == l.MessageID }) {
			chosen = append(chosen, l)
			found[l.ID()]++
			if l.MessageID != l.ID() {
				found[l.MessageID]++
			}
		}
	}
	var missing []string
	for _, id := range s.ids {
		switch found[id] {
		case 0:
			missing = append(missing, id)
		case 1:
		default:
			return nil, fmt.Errorf("%d dead letters are called %s: add --subscription, or name the message", found[id], id)
		}
	}
	if len(missing) > 0 && batch.Partial {
		return nil, fmt.Errorf("not among the %d dead letters that this command has read: %s: %s",
			len(batch.Letters), strings.Join(missing, ", "), moreLetters)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("no such dead letter: %s: another command may have settled it, which `dlq show ID` says, or may hold its message",
			strings.Join(missing, ", "))
	}
	return chosen, nil
}
