package operator

import (
	"cmp"
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

// errNotReached is the error of a dead letter that the command did not come to before it ended.
var errNotReached = errors.New("the command ended before it: run the command again")

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
	chosen, err := s.chosen(batch)
	if err != nil {
		return err
	}
	if err := s.showPlan(chosen, note); err != nil {
		return err
	}
	if !s.yes {
		planned := settleEach(ctx, batch, chosen, inOrder, func(deadletter.Letter) (string, error) { return "", nil })
		return s.report(planned, batch, note)
	}
	bar := s.progress()
	bar.unit = "dead letters"
	bar.begin(s.Args[0], int64(len(chosen)))
	outcomes := settleEach(ctx, batch, chosen, inOrder, func(l deadletter.Letter) (string, error) {
		defer bar.add(1)
		return do(ctx, batch, l)
	})
	if len(chosen) > 0 {
		bar.end(ctx.Err())
	}
	return s.report(outcomes, batch, note)
}

// settleEach runs do on each of chosen, which are dead letters of batch in its order. After the end of ctx it runs do on
// none. If inOrder is set, it runs do on no dead letter behind an older one of its aggregate that stays, because it was
// not chosen, because it is unread, or because it failed.
func settleEach(
	ctx context.Context, batch *deadletter.Batch, chosen []deadletter.Letter, inOrder bool, do func(deadletter.Letter) (string, error),
) []outcome {
	outcomes := make([]outcome, 0, len(chosen)) // not null in JSON
	var left oldest
	for _, l := range batch.All() {
		behind := left.before(l) && inOrder
		if i := len(outcomes); i == len(chosen) || !chosen[i].Same(l) {
			left.add(l)
			continue
		}
		o, err := outcome{Letter: l}, errBehind
		switch {
		case behind:
		case ctx.Err() != nil:
			err = errNotReached
		default:
			o.Result, err = do(l)
		}
		if err != nil {
			o.Error = err.Error()
			left.add(l)
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// oldest is the oldest dead letter of one aggregate that stays. The dead letters of an aggregate come one after the
// other, the oldest first.
type oldest struct{ letter *deadletter.Letter }

// before reports whether a dead letter stays that is older than l and of its aggregate.
func (o *oldest) before(l deadletter.Letter) bool {
	if o.letter != nil && (o.letter.AggregateType != l.AggregateType || o.letter.AggregateID != l.AggregateID) {
		o.letter = nil
	}
	return o.letter != nil && o.letter.Version < l.Version
}

// add adds l, which stays. Only its message is left if its row is settled, so no later dead letter waits for it.
func (o *oldest) add(l deadletter.Letter) {
	if o.letter == nil && l.Status != "done" && l.Status != "discarded" {
		o.letter = &l
	}
}

// showPlan prints the chosen dead letters for a person.
func (s *invocation) showPlan(chosen []deadletter.Letter, note string) error {
	if s.json {
		return nil
	}
	return s.print(nil, func(w io.Writer) {
		printLetters(w, chosen, shownLetters)
		if len(chosen) > 0 && note != "" {
			fmt.Fprintln(w, note)
		}
	})
}

// report prints the outcomes. It returns an error if an outcome has an error. The dead letters were chosen from batch.
func (s *invocation) report(outcomes []outcome, batch *deadletter.Batch, note string) error {
	failed := slices.DeleteFunc(slices.Clone(outcomes), func(o outcome) bool { return o.Error == "" })
	report := map[string]any{"dry_run": !s.yes, "results": outcomes, "partial": batch.Partial}
	if note != "" {
		report["note"] = note
	}
	err := s.print(report, func(w io.Writer) {
		if s.yes {
			printOutcomes(w, outcomes, failed)
		} else {
			printOutcomes(w, failed, failed)
		}
		switch {
		case len(batch.Letters) == 0:
			fmt.Fprintln(w, "There are no dead letters.")
		case len(outcomes) == 0:
			fmt.Fprintf(w, "None of the %d dead letters matches.\n", len(batch.Letters))
		case !s.yes:
			fmt.Fprint(w, unchanged)
		}
		if batch.Partial {
			fmt.Fprintln(w, moreLetters)
		}
	})
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%d of %d dead letters stay", len(failed), len(outcomes))
	}
	return err
}

// printOutcomes prints a line for each outcome. If there are many, it prints the lines of the first that failed, and
// counts all outcomes.
func printOutcomes(w io.Writer, outcomes, failed []outcome) {
	said := func(o outcome) string { return cmp.Or(o.Error, o.Result) }
	many := len(outcomes) > shownLetters
	lines := outcomes
	if many {
		lines = failed[:min(shownLetters, len(failed))]
	}
	for _, o := range lines {
		fmt.Fprintf(w, "%s\t%s\n", o.ID(), said(o))
	}
	if many {
		fmt.Fprintln(w)
		printGroups(w, "RESULT", outcomes, said)
	}
}
