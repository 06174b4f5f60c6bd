package reconcile_test

import (
	"context"
	"slices"
	"testing"

	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// counters are counters of three parts, each with a wrong one and one that cannot be counted.
type counters struct{ end string }

const firstPart, secondPart = "11111111-0000-4000-8000-000000000000", "22222222-0000-4000-8000-000000000000"

func (counters) Type() string { return "likes" }

func (counters) Estimate(context.Context) (int64, error) { return 3, nil }

func (c counters) Count(_ context.Context, in reconcile.Range) (reconcile.Counted, error) {
	until := map[string]string{firstPart: secondPart, secondPart: c.end}[in.From]
	if until == "" {
		until = firstPart
	}
	return reconcile.Counted{Until: until, Rows: 10, Wrong: []string{until}, Uncounted: 1}, nil
}

func (counters) Recount(context.Context, audit.Actor, []string) ([]string, error) {
	panic("a check repairs nothing")
}

// A check of counters adds its parts up.
func TestRecountOfSeveralParts(t *testing.T) {
	t.Parallel()
	const end = "ffffffff-ffff-ffff-ffff-ffffffffffff"
	p := &pair{}
	unsettled, err := reconcile.Recount{Counters: counters{end}}.Check(t.Context(), reconcile.Options{}, p)
	if err != nil || unsettled != 3 || p.rows != 30 || len(p.found) != 3 || !slices.Equal(p.passed, []string{firstPart, secondPart, end}) {
		t.Errorf("%d unsettled of %d rows, %d differ, passed %v, %v; want 3, 30 and 3 of three parts", unsettled, p.rows, len(p.found), p.passed, err)
	}
	p = &pair{}
	unsettled, err = reconcile.Recount{Counters: counters{end}}.Check(t.Context(), reconcile.Options{From: secondPart}, p)
	if err != nil || unsettled != 1 || p.rows != 10 {
		t.Errorf("from the last part on: %d unsettled of %d rows, %v", unsettled, p.rows, err)
	}
}
