package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"example.com/lockstep/internal/command"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/operator/deadletter"
)

// letter is version v of an aggregate.
func letter(aggregate string, v int64) deadletter.Letter {
	return deadletter.Letter{EventID: uuid.New(), AggregateType: "video", AggregateID: aggregate, Version: v, Status: "dead"}
}

// A dead letter waits for an older one of its aggregate that stays, and for no other.
func TestTheOrderOfDeadLetters(t *testing.T) {
	t.Parallel()
	a1, a2, twin, a3, b2, b3 := letter("a", 1), letter("a", 2), letter("a", 2), letter("a", 3), letter("b", 2), letter("b", 3)
	if twin.ID() < a2.ID() { // dead letters of one version are in the order of their ids
		a2, twin = twin, a2
	}
	applied := a1
	applied.Status = "done"
	for name, tc := range map[string]struct {
		all, chosen, unread []deadletter.Letter
		failing             deadletter.Letter
		want                string
	}{
		"all":                            {all: []deadletter.Letter{a1, a2, a3, b2}, want: "ok ok ok ok"},
		"the oldest fails":               {all: []deadletter.Letter{a1, a2, a3, b2}, failing: a1, want: "fails behind behind ok"},
		"one in the middle fails":        {all: []deadletter.Letter{a1, a2, a3, b2, b3}, failing: a2, want: "ok fails behind ok ok"},
		"another of its version fails":   {all: []deadletter.Letter{a2, twin, a3}, failing: a2, want: "fails ok behind"},
		"the oldest is not chosen":       {all: []deadletter.Letter{a1, a2, b2, b3}, chosen: []deadletter.Letter{a2, b2}, want: "behind ok"},
		"the oldest is unread":           {all: []deadletter.Letter{a2, a3, b2}, unread: []deadletter.Letter{b3, a1}, want: "behind behind ok"},
		"the oldest was applied":         {all: []deadletter.Letter{applied, a2, b2}, chosen: []deadletter.Letter{a2}, want: "ok"},
		"the oldest was applied, and is": {all: []deadletter.Letter{applied, a2}, failing: applied, want: "fails ok"},
	} {
		if tc.chosen == nil {
			tc.chosen = tc.all
		}
		refused := errors.New("still a teapot")
		outcomes := settleEach(t.Context(), &deadletter.Batch{Letters: tc.all, Unread: tc.unread}, tc.chosen, true, func(l deadletter.Letter) (string, error) {
			if l.Same(tc.failing) {
				return "", refused
			}
			return "ok", nil
		})
		var got []string
		for _, o := range outcomes {
			got = append(got, map[string]string{"": o.Result, refused.Error(): "fails", errBehind.Error(): "behind"}[o.Error])
		}
		if said := strings.Join(got, " "); said != tc.want {
			t.Errorf("%s: %s, want %s", name, said, tc.want)
		}
	}
}

// The work on each of many dead letters of one aggregate does not grow with their number: with a search among the
// earlier ones, 3,000 took nine minutes.
func TestManyDeadLettersOfAnAggregate(t *testing.T) {
	t.Parallel()
	letters := make([]deadletter.Letter, deadletter.MaxLetters)
	for i := range letters {
		letters[i] = letter("a", int64(i+1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	outcomes := settleEach(ctx, &deadletter.Batch{Letters: letters}, letters, true, func(deadletter.Letter) (string, error) {
		calls++
		if calls == len(letters)-1 {
			cancel()
		}
		return "applied", nil
	})
	last := outcomes[len(outcomes)-1]
	if calls != len(letters)-1 || len(outcomes) != len(letters) || last.Error != errNotReached.Error() {
		t.Errorf("%d calls, %d outcomes, the last one %+v; want the last one not reached", calls, len(outcomes), last)
	}
}

// A text of many dead letters has some of them, and counts all.
func TestALongListOfDeadLetters(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var hot, cold []eventing.Event
	for range 60 {
		hot, cold = append(hot, event(uuid.NewString(), 1)), append(cold, event(uuid.NewString(), 1))
	}
	b.deadLetter(t, "too hot", hot...)
	b.deadLetter(t, "too cold", cold...)
	says := func(code int, line string, lines int, wanted ...string) {
		t.Helper()
		stdout, _ := b.run(t, code, line)
		if n := strings.Count(stdout, "\n"); n != lines {
			t.Errorf("%s: %d lines, want %d: %s", line, n, lines, stdout)
		}
		for _, want := range wanted {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: %q is missing: %s", line, want, stdout)
			}
		}
	}
	const heading, counts = 1, 3 // lines: an empty one, what is shown, the title of the groups
	says(0, "dlq list", heading+shownLetters+counts+2, "100 of 120", "60       too hot", "60       too cold")
	says(0, "dlq list --limit 5 --reason hot", heading+5+counts+1, "5 of 60", "60       too hot")
	says(0, "dlq list --limit 1000", heading+120)
	says(0, "dlq redrive --all --reason hot", 60+1, "Nothing was changed")
	says(0, "dlq redrive --all", shownLetters+counts+2+1, "60       too cold", "Nothing was changed")
	var all letterList
	b.json(t, 0, "dlq list", &all)
	if len(all.Letters) != 120 {
		t.Errorf("%d in JSON, want all 120", len(all.Letters))
	}
	b.broken.Store(true)
	says(1, "dlq redrive --all --yes --why test", 2*(shownLetters+counts)-1+2+1, "120      still a teapot")
	b.broken.Store(false)
	says(0, "dlq redrive --all --yes --why test", shownLetters+counts+2+2+1, "120      applied")
}

// A command that could not take all dead letters says so.
func TestAPartOfTheDeadLetters(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := &invocation{Call: command.Call{Out: &out}, ids: []string{uuid.NewString()}, yes: true}
	one := letter("a", 1)
	batch := &deadletter.Batch{Letters: []deadletter.Letter{one}, Partial: true}
	if _, err := s.named(batch); err == nil || !strings.Contains(err.Error(), moreLetters) {
		t.Errorf("a name that was not read: %v", err)
	}
	for outcomes, says := range map[int]string{0: "None of the 1 dead letters matches.", 1: "applied"} {
		out.Reset()
		err := s.report([]outcome{{Letter: one, Result: "applied"}}[:outcomes], batch, "")
		if err != nil || !strings.Contains(out.String(), says) || !strings.Contains(out.String(), moreLetters) {
			t.Errorf("%d outcomes: %v, %s", outcomes, err, out.String())
		}
	}
}

// The largest groups come first, and the smallest ones are counted together.
func TestGroupsOfReasons(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	items := []string{"often", "often"}
	for i := range shownGroups + 2 {
		items = append(items, fmt.Sprint("once ", 10+i))
	}
	printGroups(&out, "REASON", items, strings.Clone)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if diff := cmp.Diff([]string{"LETTERS\tREASON", "2\toften", "1\tonce 10"}, lines[:3]); diff != "" || len(lines) != shownGroups+2 {
		t.Errorf("%d lines (-want +got):\n%s", len(lines), diff)
	}
	if last := lines[len(lines)-1]; last != "and 3 others" {
		t.Errorf("the last line is %q", last)
	}
}
