package rebuild_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/backfill"
	"example.com/lockstep/pkg/eventing/operator/audit"
	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// stubborn is a model with rows that cannot be written.
type stubborn struct {
	model

	t *testing.T
}

func (s stubborn) Replace(ctx context.Context, by audit.Actor, seen []reconcile.Row, standing reconcile.Standing) ([]string, error) {
	odd := ask[string](s.t, s.fixture, `SELECT a::text FROM one WHERE body = 'odd'`)
	return s.model.Replace(ctx, by, slices.DeleteFunc(seen, func(r reconcile.Row) bool { return slices.Contains(odd, r.ID) }), standing)
}

// A row that cannot be written is left and counted. It holds up neither the others nor the end.
func TestRowsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	a, b := f.part(one), f.part(two)
	a.After.Model = stubborn{model{f, one, "one"}, t}
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	passes := 0
	f.at = func(step string) {
		if step == "begin checking type one" {
			passes++
			if passes == 1 {
				f.exec(t, `UPDATE one SET body = CASE version WHEN 3 THEN 'odd' ELSE 'wrong' END WHERE version IN (3, 4)`)
			}
		}
	}
	if r := f.run(t); r.Left != 10 || r.RepairedAfter != 10 || passes != 2 {
		t.Errorf("%+v after %d passes", r, passes)
	}
	f.named(t, `SELECT 'changed ' || a FROM one WHERE body = 'odd'`)
	f.phase(t, rebuild.Done)
	f.same(t, "two")
}

// named fails the test unless the rows that sql selects were left, each once, and no others.
func (f *fixture) named(t *testing.T, sql string) {
	t.Helper()
	want := ask[string](t, f, sql)
	slices.Sort(want)
	slices.Sort(f.left)
	if !slices.Equal(f.left, want) {
		t.Errorf("%d rows were named, want %d: %q", len(f.left), len(want), f.left)
	}
}

// A row of a later epoch than the owner's cannot be repaired before the owner has reached it.
func TestRowsOfALaterEpoch(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	f.at = func(step string) {
		if step == "begin checking type one" {
			f.exec(t, `UPDATE one SET epoch = 9 WHERE version = 3`)
		}
	}
	if r := f.run(t); r.Left != 10 {
		t.Errorf("%+v", r)
	}
	f.named(t, `SELECT 'ahead ' || a FROM one WHERE epoch = 9`)
}

// overtaken is a model of damaged rows that an event reaches before their repair, some times. The
// event changes a part of each row, and leaves the rest damaged.
type overtaken struct {
	model

	t     *testing.T
	times int
}

func (o *overtaken) Replace(ctx context.Context, by audit.Actor, seen []reconcile.Row, standing reconcile.Standing) ([]string, error) {
	if o.times == 0 {
		return o.model.Replace(ctx, by, seen, standing)
	}
	o.times--
	o.exec(o.t, `UPDATE owned_one SET version = version + 10 WHERE a IN (SELECT a FROM one WHERE body = 'wrong')`)
	o.serve(o.t, `UPDATE one SET version = version + 10 WHERE body = 'wrong'`)
	return nil, nil
}

// Rows that move before their repair are compared again: a rebuild is not done while they differ.
func TestRowsThatMoveBeforeTheirRepair(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		times int
		want  error
		phase rebuild.Phase
	}{
		"once":            {1, nil, rebuild.Done},
		"up to the last":  {4, nil, rebuild.Done},
		"at each attempt": {5, rebuild.ErrUnsettled, rebuild.Checking},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 50)
			a, b := f.part(one), f.part(two)
			a.After.Model = &overtaken{model{f, one, "one"}, t, tc.times}
			f.Rebuild = rebuild.New(f.admin, recount, a, b)
			f.at = func(step string) {
				if step == "begin checking type one" {
					f.at = func(string) {}
					f.exec(t, `UPDATE one SET body = 'wrong' WHERE version = 3`)
				}
			}
			r, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
			if !errors.Is(err, tc.want) || r.Left != 0 || len(f.left) != 0 {
				t.Errorf("%+v, %v, named %q", r, err, f.left)
			}
			f.phase(t, tc.phase)
			if tc.want != nil {
				f.run(t)
			}
			f.phase(t, rebuild.Done)
			f.same(t, "one", "two")
		})
	}
}

// unable is a model that writes no row.
type unable struct{ model }

func (unable) Replace(context.Context, audit.Actor, []reconcile.Row, reconcile.Standing) ([]string, error) {
	return nil, nil
}

// Losses that another comparison repairs, since they are more than one remembers, are left once.
func TestManyLossesAreLeftOnce(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("compares 210,000 rows, three times: LOCKSTEP_FULL=1")
	}
	f := newFixture(t, 10)
	a, b := f.part(one), f.part(two)
	a.After.Model = unable{model{f, one, "one"}}
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	const extra = 10_005
	f.at = func(step string) {
		if step == "begin checking type one" {
			f.at = func(string) {}
			f.exec(t, `INSERT INTO owned_one (a, version, updated_at) SELECT gen_random_uuid(), 1, '2026-01-02' FROM generate_series(1, 210000)`)
			f.exec(t, `INSERT INTO one (a, version, updated_at) SELECT a, version, updated_at FROM owned_one WHERE body IS NULL`)
			f.exec(t, `INSERT INTO one (a, version, updated_at) SELECT gen_random_uuid(), 1, '2026-01-02' FROM generate_series(1, $1)`, extra)
		}
	}
	if r := f.run(t); r.Left != extra || r.RepairedAfter != 0 {
		t.Errorf("%+v", r)
	}
}

// refusing is a model whose shadow refuses all rows of its pages.
type refusing struct {
	model

	pages int
}

func (r *refusing) Fill(context.Context, string) (projection.Filled, error) {
	r.pages++
	f := projection.Filled{Rows: 600, Failed: 600, AsOf: time.Now().Add(time.Hour), Next: newID()}
	f.Done = r.pages == 4
	return f, nil
}

// A shadow that refuses many rows ends a Run, and the next one goes on behind them.
func TestAShadowThatRefusesMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	a, b := f.part(one), f.part(two)
	r := &refusing{model: model{f, one, rebuild.Shadow("one")}}
	a.Shadow = r
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	for want := 2; want <= 4; want += 2 {
		if _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); !errors.Is(err, backfill.ErrRefused) || r.pages != want {
			t.Errorf("%d pages, want %d: %v", r.pages, want, err)
		}
		f.phase(t, rebuild.Filling)
	}
}
