package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

const deadLettersUsage = `dlq looks after the dead letters: events that could not be applied.

usage: dlq COMMAND [flags]

commands:
  list                what could not be applied, and why
  show ID             one dead letter, whole, and what was done to it by hand
  redrive ID...       apply dead letters now, after their cause is fixed
  redrive --all       the same for all of them
  discard ID...       give dead letters up; the audit table keeps their messages
  discard --all       the same for all of them
  help                print this

An ID is an event's or, where a message is no event, the message's.

flags of list, redrive --all and discard --all:
  --reason TEXT       only those whose reason contains TEXT
  --aggregate ID      only those of this aggregate
flags of redrive and discard:
  --yes               do it; without, and without a terminal to ask at, only show it
  --by NAME           who does it ($USER), for the audit table; a job needs it
  --why TEXT          why
flags of all:
  --subscription NAME only the dead letters of this subscription
  --json              one JSON object on stdout

Redriving applies an event here, in one transaction with its inbox row, and never
publishes it. It is safe to repeat. The events of an aggregate go in order: behind one
that fails, or that was not asked for, the later ones stay. Before an event is
discarded its aggregate takes its owner's state, which has what the event changed.

Looking at dead letters takes them from the subscription for a moment: a second
operator does not see them meanwhile.

environment: as of serve, but for PORT

exit codes: 0 done, 1 failed, 2 wrong usage
`

// workTime is well below the lease time of a Batch's messages.
const workTime = 8 * time.Minute

// DeadLetters configures the tool `dlq` for the consumers of one service.
type DeadLetters struct {
	Subscriptions []string
	// OwnerVariable is the environment variable with the gRPC address of the
	// service that owns the events. Handler returns the consumers' handler,
	// with a connection to the owner.
	OwnerVariable string
	Handler       func(db *pgxpool.Pool, owner *grpc.ClientConn) inbox.Handler
}

// Tool is the tool `dlq`.
func (d DeadLetters) Tool() command.Tool {
	return command.Tool{
		Name: "dlq", About: "look after dead letters: `dlq help`",
		Run: func(ctx context.Context, c command.Call) error {
			return dispatch(ctx, c, deadLettersUsage, map[string]subcommand{
				"list": d.list, "show": d.show, "redrive": d.redrive, "discard": d.discard,
			})
		},
	}
}

// from declares the flag that selects one subscription.
func (s *invocation) from() *string { return s.flags.String("subscription", "", "") }

// queue opens the dead letters that the environment names, of one subscription
// unless only is empty. The caller calls done.
func (d DeadLetters) queue(ctx context.Context, s *invocation, r *command.Environment, only string,
) (b *deadletter.Queue, db *pgxpool.Pool, done func(), err error) {
	subscriptions := d.Subscriptions
	if only != "" {
		if !slices.Contains(subscriptions, only) {
			return nil, nil, nil, command.Usagef("--subscription %s: want one of %s", only, strings.Join(subscriptions, ", "))
		}
		subscriptions = []string{only}
	}
	project, endpoint := r.Required("GOOGLE_CLOUD_PROJECT"), r.HostPort("PUBSUB_ENDPOINT", "")
	if db, err = s.open(ctx, r); err != nil {
		return nil, nil, nil, err
	}
	client, err := connect.NewPubSub(ctx, project, connect.PubSubOptions{Endpoint: endpoint})
	if err != nil {
		db.Close()
		return nil, nil, nil, err
	}
	done = func() {
		_ = client.Close()
		db.Close()
	}
	return deadletter.New(db, client, subscriptions...), db, done, nil
}

func (d DeadLetters) list(ctx context.Context, s *invocation) error {
	f, only := s.filters(), s.from()
	if err := s.parseIDs(0); err != nil {
		return err
	}
	b, _, done, err := d.queue(ctx, s, command.NewEnvironment(s.Getenv), *only)
	if err != nil {
		return err
	}
	defer done()
	batch, err := b.Collect(ctx)
	if err != nil {
		return err
	}
	letters := f.of(batch.Letters)
	err = s.print(map[string]any{"dead_letters": letters, "partial": batch.Partial}, func(w io.Writer) {
		fmt.Fprintln(w, "ID\tAGGREGATE\tVERSION\tTYPE\tSTATUS\tATTEMPTS\tSINCE\tSUBSCRIPTION\tMESSAGE\tREASON")
		for _, l := range letters {
			printLetter(w, l)
		}
		if batch.Partial {
			fmt.Fprintln(w, "There are more. Settle these first.")
		}
	})
	return errors.Join(err, batch.Release(ctx))
}

func printLetter(w io.Writer, l deadletter.Letter) {
	message := l.MessageID
	if message == "" {
		message = "gone"
	}
	fmt.Fprintf(w, "%s\t%s/%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", l.ID(), l.AggregateType, l.AggregateID, l.Version, l.Type,
		l.Status, l.Attempts, stamp(l.Since), l.Subscription, message, oneLine(l.Reason))
}

func (d DeadLetters) show(ctx context.Context, s *invocation) error {
	only := s.from()
	if err := s.parseIDs(1); err != nil {
		return err
	}
	b, _, done, err := d.queue(ctx, s, command.NewEnvironment(s.Getenv), *only)
	if err != nil {
		return err
	}
	defer done()
	batch, err := b.Collect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(s.showLetter(ctx, b, batch), batch.Release(ctx))
}

func (s *invocation) showLetter(ctx context.Context, b *deadletter.Queue, batch *deadletter.Batch) error {
	out := struct {
		Letter     *deadletter.Letter `json:"dead_letter"`
		Attributes map[string]string  `json:"attributes,omitempty"`
		Payload    []byte             `json:"payload,omitempty"`
		Actions    []audit.Entry      `json:"actions"`
	}{}
	letters, err := s.named(batch.Letters)
	if err == nil {
		out.Letter = &letters[0]
		out.Payload, out.Attributes = batch.Content(letters[0])
	}
	// A settled dead letter has left, but its actions are in the audit table.
	if id, invalid := uuid.Parse(s.ids[0]); invalid == nil {
		var historyErr error
		if out.Actions, historyErr = b.History(ctx, id); historyErr != nil {
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
			for _, name := range sorted(out.Attributes) {
				fmt.Fprintf(w, "%s\t%s\n", name, out.Attributes[name])
			}
			fmt.Fprintf(w, "payload\t%d bytes (--json has them in base64)\n", len(out.Payload))
		}
		printActions(w, out.Actions)
	})
}

// filter selects dead letters.
type filter struct{ reason, aggregate string }

func (s *invocation) filters() *filter {
	var f filter
	s.flags.StringVar(&f.reason, "reason", "", "")
	s.flags.StringVar(&f.aggregate, "aggregate", "", "")
	return &f
}

func (f *filter) of(letters []deadletter.Letter) []deadletter.Letter {
	chosen := []deadletter.Letter{} // not null in JSON
	for _, l := range letters {
		if strings.Contains(l.Reason, f.reason) && (f.aggregate == "" || f.aggregate == l.AggregateID) {
			chosen = append(chosen, l)
		}
	}
	return chosen
}

// named returns the dead letters that the command line names, in their own
// order. A name that several dead letters share is an error.
func (s *invocation) named(letters []deadletter.Letter) ([]deadletter.Letter, error) {
	var chosen []deadletter.Letter
	found := map[string]int{}
	for _, l := range letters {
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
	if len(missing) > 0 {
		return nil, fmt.Errorf("no such dead letter: %s", strings.Join(missing, ", "))
	}
	return chosen, nil
}
