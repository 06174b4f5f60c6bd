package operator

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// concluded is a check with this outcome, whose repairs succeed.
type concluded struct {
	reconcile.Checker

	rows      int64
	found     []reconcile.Difference
	unsettled int
	// since are the rows that differ from the second check on.
	since  []reconcile.Difference
	checks *int
}

func (concluded) Type() string                              { return "video" }
func (c concluded) Estimate(context.Context) (int64, error) { return c.rows, nil }

func (c concluded) Check(ctx context.Context, _ reconcile.Options, seen reconcile.Observer) (int, error) {
	*c.checks++
	if *c.checks > 1 {
		c.found = slices.Concat(c.found, c.since)
	}
	if err := seen.Differ(ctx, c.found); err != nil {
		return 0, err
	}
	return c.unsettled, seen.Passed(ctx, "", c.rows)
}

func (c concluded) Repair(_ context.Context, _ audit.Actor, found []reconcile.Difference) (ids []string, err error) {
	if *c.checks == 1 {
		return nil, errors.New("the first check repairs nothing")
	}
	return make([]string, len(found)), nil
}

func (concluded) Still(context.Context, []reconcile.Difference) ([]reconcile.Difference, error) {
	return nil, nil
}

// result is that of a check by a command.
func (c concluded) result(t *testing.T, flags reconcileFlags) *reconciliation {
	t.Helper()
	s := &invocation{yes: true}
	s.Err = io.Discard
	c.checks = new(int)
	r := newComparing(s, flags, []reconcile.Checker{c})
	err := r.check(t.Context())
	if err == nil && flags.repair {
		err = r.repair(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.result(!flags.repair)
}

func differences(kind reconcile.Kind, n int) (found []reconcile.Difference) {
	for range n {
		found = append(found, reconcile.Difference{Kind: kind})
	}
	return found
}

// Rows that were not decided are no rows that are equal.
func TestUndecidedRowsFail(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		concluded
		repair bool
		want   string
	}{
		"equal":                  {concluded{rows: 9}, false, ""},
		"repaired":               {concluded{rows: 9, found: differences(reconcile.Changed, 2)}, true, ""},
		"different":              {concluded{rows: 9, found: differences(reconcile.Changed, 2)}, false, "2 rows differ from their owner's"},
		"undecided":              {concluded{rows: 9, unsettled: 1}, false, "0 rows differ from their owner's, and 1 could not be decided"},
		"undecided, in a repair": {concluded{rows: 9, unsettled: 1}, true, "and 1 could not be decided"},
	} {
		r := tc.result(t, reconcileFlags{repair: tc.repair})
		err := r.verdict()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if said := strings.Join(r.lines(), " "); strings.Contains(said, "could not be decided") != (r.Unsettled > 0) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// A check that waits says so on stderr, with the number of rows and the time, and so does one that reads again.
func TestAWaitIsShown(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	s := &invocation{}
	s.Err = &said
	c := checking{comparing: newComparing(s, reconcileFlags{Options: reconcile.Options{Grace: 90 * time.Second}}, nil), checker: concluded{}}
	c.Waits(t.Context(), 3)
	c.Retries(t.Context(), errors.New("no connection"))
	const want = "video: 3 rows may differ because of events on their way: looking again, for 1m30s or longer\nvideo: no connection, trying again\n"
	if said.String() != want {
		t.Errorf("%q", said.String())
	}
	said.Reset()
	p := phases{bar: progress{to: &said}, grace: 90 * time.Second}
	p.Waits("video", 3)
	p.Retries("video", errors.New("no connection"))
	if said.String() != want {
		t.Errorf("of a rebuild: %q", said.String())
	}
}

// Rows of which the owner knows nothing are repaired while they are few. More of them are a
// sign of the wrong owner. All rows stay then until a person accepts the losses: those that it
// knows may be another environment's, too. A read model that lacks rows has lost none to it.
func TestLosses(t *testing.T) {
	t.Parallel()
	lost := slices.Concat(differences(reconcile.Extra, 60), differences(reconcile.Ahead, 60), differences(reconcile.Changed, 1))
	wrong := slices.Concat(differences(reconcile.Missing, 3000), differences(reconcile.Changed, 2), differences(reconcile.Behind, 2),
		differences(reconcile.Extra, 200))
	for name, tc := range map[string]struct {
		concluded
		accept                       bool
		repaired, refused, remaining int
	}{
		"few of few rows":           {concluded{rows: 100, found: differences(reconcile.Extra, 100)}, false, 100, 0, 0},
		"one in twenty":             {concluded{rows: 2400, found: lost}, false, 121, 0, 0},
		"more":                      {concluded{rows: 2399, found: lost}, false, 0, 121, 121},
		"more, and accepted":        {concluded{rows: 2399, found: lost}, true, 121, 0, 0},
		"an empty owner":            {concluded{found: differences(reconcile.Extra, 1)}, false, 0, 1, 1},
		"an empty owner, accepted":  {concluded{found: differences(reconcile.Extra, 1)}, true, 1, 0, 0},
		"another environment's":     {concluded{rows: 3004, found: wrong}, false, 0, 3204, 3204},
		"a larger environment's":    {concluded{rows: 4000, found: slices.Concat(differences(reconcile.Extra, 150), differences(reconcile.Missing, 4000))}, false, 0, 4150, 4150},
		"more since the decision":   {concluded{rows: 2399, found: lost[60:], since: lost[:60]}, false, 1, 120, 120},
		"nothing on either side":    {concluded{}, false, 0, 0, 0},
		"many rows that are others": {concluded{rows: 500, found: differences(reconcile.Missing, 500)}, false, 500, 0, 0},
		"more than one check takes": {concluded{rows: 1_000_000, found: differences(reconcile.Extra, maxListed+5)}, false, maxListed, 0, 5},
	} {
		r := tc.result(t, reconcileFlags{repair: true, acceptLosses: tc.accept})
		if r.Repaired != tc.repaired || r.Refused != tc.refused || r.Remaining != tc.remaining || (r.verdict() == nil) != (tc.remaining == 0) {
			t.Errorf("%s: %d repaired, %d refused, %d remain", name, r.Repaired, r.Refused, r.Remaining)
		}
		if said := strings.Join(r.lines(), " "); strings.Contains(said, "--accept-losses") != (tc.refused > 0) {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// All types have one owner: if it may be the wrong one for one type, no row of the others is
// repaired either. Counters are this side's own.
func TestDoubtsAreAboutAllTypes(t *testing.T) {
	t.Parallel()
	mixed := slices.Concat(differences(reconcile.Missing, 900), differences(reconcile.Extra, 60))
	for name, tc := range map[string]struct {
		lost              int
		repaired, refused int
	}{
		"doubtful": {200, 1, 200 + 960}, "fewer": {90, 90 + 960 + 1, 0},
	} {
		s := &invocation{yes: true}
		s.Err = io.Discard
		r := newComparing(s, reconcileFlags{repair: true}, []reconcile.Checker{
			concluded{rows: 1000, found: differences(reconcile.Extra, tc.lost), checks: new(int)},
			concluded{rows: 1000, found: mixed, checks: new(int)},
			reconcile.Recount{Counters: &wrongCounter{from: 1}},
		})
		if err := errors.Join(r.check(t.Context()), r.repair(t.Context())); err != nil {
			t.Fatal(err)
		}
		if sum := r.result(false); sum.Repaired != tc.repaired || sum.Refused != tc.refused {
			t.Errorf("%s: %d repaired, %d refused", name, sum.Repaired, sum.Refused)
		}
	}
}

// Repaired rows may leave counters wrong that were right before.
func TestCountersAreCheckedAfterARepair(t *testing.T) {
	t.Parallel()
	s := &invocation{yes: true}
	s.Err = io.Discard
	r := newComparing(s, reconcileFlags{repair: true}, []reconcile.Checker{
		concluded{rows: 9, found: differences(reconcile.Changed, 2), checks: new(int)},
		reconcile.Recount{Counters: &wrongCounter{from: 2}},
	})
	if err := errors.Join(r.check(t.Context()), r.repair(t.Context())); err != nil {
		t.Fatal(err)
	}
	if sum := r.result(false); sum.Repaired != 3 {
		t.Errorf("%d repaired, want two rows and a counter", sum.Repaired)
	}
}

// wrongCounter is one counter that is wrong from a check on, until it is counted again.
type wrongCounter struct{ from, checks int }

func (*wrongCounter) Type() string                            { return "counters" }
func (*wrongCounter) Estimate(context.Context) (int64, error) { return 1, nil }

func (c *wrongCounter) Count(_ context.Context, in reconcile.Range) (counted reconcile.Counted, err error) {
	counted = reconcile.Counted{Until: in.Until, Rows: 1}
	c.checks++
	if c.from > 0 && c.checks >= c.from {
		counted.Wrong = []string{in.From}
	}
	return counted, nil
}

func (c *wrongCounter) Recount(_ context.Context, _ audit.Actor, ids []string) ([]string, error) {
	c.from = 0
	return ids, nil
}

func TestRatesAreNamedByTheirFlags(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]reconcile.Options{
		"--rate -1: negative":         {Rate: -1, Grace: time.Second},
		"--grace 500ms: less than 1s": {Grace: time.Second / 2},
		"--grace -1m0s: less than 1s": {Rate: 100, Grace: -time.Minute},
	} {
		if err := checkRates(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if err := checkRates(reconcile.Options{Grace: time.Second}); err != nil {
		t.Error(err)
	}
}
