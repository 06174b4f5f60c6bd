package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

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

// action settles one dead letter, and returns a text as the result. It may return both a result and
// an error.
type action func(ctx context.Context, batch *deadletter.Batch, l deadletter.Letter) (string, error)

func (m ReadModel) redrive(ctx context.Context, s *invocation) error {
	return m.settle(ctx, s, true, "", func(ctx context.Context, batch *deadletter.Batch, l deadletter.Letter) (string, error) {
		result, err := batch.Redrive(ctx, s.actor, l)
		return string(result), err
	})
}

func (m ReadModel) discard(ctx context.Context, s *invocation) error {
	// The order does not matter, because discarding a later event takes nothing from an earlier
	// one.
	return m.settle(ctx, s, false, asksOwner, func(ctx context.Context, batch *deadletter.Batch, l deadletter.Letter) (string, error) {
		if err := batch.Discard(ctx, s.actor, l); err != nil {
			return "", err
		}
		return "discarded", nil
	})
}

// asksOwner is the note on a discard for the operator.
const asksOwner = "Each aggregate takes its owner's state first, which has what the event changed, also where no event follows. " +
	"If its owner cannot be asked, the dead letter stays."

// settle runs do on each dead letter that the command line selects, in the order of Batch.Letters.
// If inOrder is set, a dead letter waits for the older dead letters of its aggregate. Without
// confirmation settle only prints the plan. note is a remark about the plan.
func (m ReadModel) settle(ctx context.Context, s *invocation, inOrder bool, note string, do action) error {
	s.confirmFlags()
	s.subscriptionFlag()
	if err := s.parseSelection("the ids of dead letters", math.MaxInt); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	batch, err := m.deadLetters(ctx, s, needs{owner: m.OwnerVariable})
	if err != nil {
		return err
	}
	chosen, err := s.chosen(batch.Letters)
	if err != nil {
		return err
	}
	if err := s.showPlan(chosen, note); err != nil {
		return err
	}
	outcomes := []outcome{} // not null in JSON
	for _, l := range chosen {
		o := outcome{Letter: l}
		var problem error
		switch {
		case inOrder && behind(batch.Letters, outcomes, l):
			problem = errBehind
		case s.yes:
			o.Result, problem = do(ctx, batch, l)
		}
		if problem != nil {
			o.Error = problem.Error()
		}
		outcomes = append(outcomes, o)
	}
	return s.report(outcomes, len(batch.Letters), note)
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

// behind reports whether an older dead letter of l's aggregate remains, because it was not
// chosen or because it failed.
func behind(all []deadletter.Letter, settled []outcome, l deadletter.Letter) bool {
	return slices.ContainsFunc(all, func(older deadletter.Letter) bool {
		if older.AggregateType != l.AggregateType || older.AggregateID != l.AggregateID || older.Version >= l.Version ||
			older.Status == "done" || older.Status == "discarded" {
			return false
		}
		return !slices.ContainsFunc(settled, func(o outcome) bool { return o.Same(older) && o.Error == "" })
	})
}

// report prints the outcomes. It returns an error if an outcome has an error. all is the number of
// dead letters of which some were chosen.
func (s *invocation) report(outcomes []outcome, all int, note string) error {
	failed := 0
	for _, o := range outcomes {
		if o.Error != "" {
			failed++
		}
	}
	report := map[string]any{"dry_run": !s.yes, "results": outcomes}
	if note != "" {
		report["note"] = note
	}
	err := s.print(report, func(w io.Writer) {
		for _, o := range outcomes {
			switch {
			case o.Error != "":
				fmt.Fprintf(w, "%s\t%s\n", o.ID(), o.Error)
			case s.yes:
				fmt.Fprintf(w, "%s\t%s\n", o.ID(), o.Result)
			}
		}
		switch {
		case all == 0:
			fmt.Fprintln(w, "There are no dead letters.")
		case len(outcomes) == 0:
			fmt.Fprintf(w, "None of the %d dead letters matches.\n", all)
		case !s.yes:
			fmt.Fprint(w, unchanged)
		}
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %d dead letters stay", failed, len(outcomes))
	}
	return err
}
