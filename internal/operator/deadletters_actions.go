package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/internal/connect"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

// errBehind is the error of a dead letter that must wait for an earlier one.
var errBehind = errors.New("an older dead letter of its aggregate comes first: redrive or discard that")

// outcome is the result for one dead letter, real or planned.
type outcome struct {
	deadletter.Letter
	// Result is empty if nothing was done.
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
}

// action settles one dead letter; the text is its result. It may return
// both a result and an error.
type action func(ctx context.Context, batch *deadletter.Batch, l deadletter.Letter) (string, error)

func (d DeadLetters) redrive(ctx context.Context, s *invocation) error {
	only := s.from()
	choose, err := s.selection()
	if err != nil {
		return err
	}
	b, handler, done, err := d.queueAndHandler(ctx, s, *only)
	if err != nil {
		return err
	}
	defer done()
	return s.actOnAll(ctx, b, choose, behind, "", func(ctx context.Context, batch *deadletter.Batch, l deadletter.Letter) (string, error) {
		result, err := batch.Redrive(ctx, s.actor, handler, l)
		return string(result), err
	})
}

func (d DeadLetters) discard(ctx context.Context, s *invocation) error {
	only := s.from()
	choose, err := s.selection()
	if err != nil {
		return err
	}
	b, handler, done, err := d.queueAndHandler(ctx, s, *only)
	if err != nil {
		return err
	}
	defer done()
	// In any order: discarding a later event takes nothing from an earlier one.
	freely := func([]deadletter.Letter, []outcome, deadletter.Letter) bool { return false }
	return s.actOnAll(ctx, b, choose, freely, asksOwner, func(
		ctx context.Context, batch *deadletter.Batch, l deadletter.Letter,
	) (string, error) {
		if err := batch.Discard(ctx, s.actor, handler, l); err != nil {
			return "", err
		}
		return "discarded", nil
	})
}

// queueAndHandler is queue plus the consumers' handler, which may call the owner.
// The caller calls done.
func (d DeadLetters) queueAndHandler(ctx context.Context, s *invocation, only string,
) (b *deadletter.Queue, handler inbox.Handler, done func(), err error) {
	r := command.NewEnvironment(s.Getenv)
	r.Required(d.OwnerVariable)
	addr := r.HostPort(d.OwnerVariable, "")
	b, db, closeQueue, err := d.queue(ctx, s, r, only)
	if err != nil {
		return nil, nil, nil, err
	}
	owner, err := connect.Dial(addr)
	if err != nil {
		closeQueue()
		return nil, nil, nil, err
	}
	return b, d.Handler(db, owner), func() {
		_ = owner.Close()
		closeQueue()
	}, nil
}

// asksOwner is the note on a discard for the operator.
const asksOwner = "Each aggregate takes its owner's state first, which has what the event changed, also where no event follows. " +
	"If its owner cannot be asked, the dead letter stays."

// selection parses a command line that names dead letters or has --all.
func (s *invocation) selection() (func([]deadletter.Letter) ([]deadletter.Letter, error), error) {
	s.confirmFlags()
	all := s.flags.Bool("all", false, "")
	f := s.filters()
	if err := s.parse(); err != nil {
		return nil, err
	}
	switch {
	case *all == (len(s.ids) > 0):
		return nil, command.Usagef("want the ids of dead letters, or --all")
	case *all:
		return func(letters []deadletter.Letter) ([]deadletter.Letter, error) { return f.of(letters), nil }, nil
	case *f != (filter{}):
		return nil, command.Usagef("--reason and --aggregate belong to --all")
	}
	return s.named, nil
}

// actOnAll runs one action on each chosen dead letter, in their order, unless
// after reports that it must wait. Without confirmation it only prints the
// plan; note is the remark about it.
func (s *invocation) actOnAll(ctx context.Context, b *deadletter.Queue, choose func([]deadletter.Letter) ([]deadletter.Letter, error),
	after func(all []deadletter.Letter, settled []outcome, l deadletter.Letter) bool, note string, do action,
) error {
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	batch, err := b.Collect(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(batch.Letters)
	if err != nil {
		return errors.Join(err, batch.Release(ctx))
	}
	outcomes := []outcome{} // not null in JSON
	err = s.showPlan(chosen, note)
	going := err == nil && len(chosen) > 0 && s.confirmed()
	for _, l := range chosen {
		o := outcome{Letter: l}
		var problem error
		switch {
		case after(batch.Letters, outcomes, l):
			problem = errBehind
		case going:
			o.Result, problem = do(ctx, batch, l)
		}
		if problem != nil {
			o.Error = problem.Error()
		}
		outcomes = append(outcomes, o)
	}
	return errors.Join(err, batch.Release(ctx), s.report(outcomes, going, note))
}

// showPlan prints the chosen dead letters for a person.
func (s *invocation) showPlan(chosen []deadletter.Letter, note string) error {
	if s.json {
		return nil
	}
	return s.print(nil, func(w io.Writer) {
		for _, l := range chosen {
			printLetter(w, l)
		}
		if len(chosen) > 0 && note != "" {
			fmt.Fprintln(w, note)
		}
	})
}

// behind reports whether an older dead letter of l's aggregate remains: it was
// not chosen, or failed.
func behind(all []deadletter.Letter, settled []outcome, l deadletter.Letter) bool {
	return slices.ContainsFunc(all, func(older deadletter.Letter) bool {
		if older.AggregateType != l.AggregateType || older.AggregateID != l.AggregateID || older.Version >= l.Version ||
			older.Status == "done" || older.Status == "discarded" {
			return false
		}
		return !slices.ContainsFunc(settled, func(o outcome) bool { return o.Same(older) && o.Error == "" })
	})
}

// report prints the outcomes. It returns an error if one of them has one.
func (s *invocation) report(outcomes []outcome, done bool, note string) error {
	failed := 0
	for _, o := range outcomes {
		if o.Error != "" {
			failed++
		}
	}
	report := map[string]any{"dry_run": !done, "results": outcomes}
	if note != "" {
		report["note"] = note
	}
	err := s.print(report, func(w io.Writer) {
		for _, o := range outcomes {
			switch {
			case o.Error != "":
				fmt.Fprintf(w, "%s\t%s\n", o.ID(), o.Error)
			case done:
				fmt.Fprintf(w, "%s\t%s\n", o.ID(), o.Result)
			}
		}
		if len(outcomes) == 0 {
			fmt.Fprintln(w, "There are no dead letters to choose from.")
		} else if !done {
			fmt.Fprint(w, unchanged)
		}
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d dead letters stay", failed, len(outcomes))
	}
	return err
}

func sorted(attributes map[string]string) []string { return slices.Sorted(maps.Keys(attributes)) }
