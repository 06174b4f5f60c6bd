package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing/projection"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// An owner that lacks many rows, or has older ones, is perhaps the wrong one, or an empty one.
// Then nothing is exchanged, and the served rows and those of before stay as they are, until an
// operator accepts the loss.
func TestLossesAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		at, damage string
		want       rebuild.Phase
	}{
		"an empty owner":                 {"fill one", `DELETE FROM owned_one`, rebuild.Comparing},
		"an owner of an earlier time":    {"fill one", `UPDATE one SET version = version + 3, body = 'newest', updated_at = now() - interval '10 min'`, rebuild.Comparing},
		"another owner after the switch": {"begin checking type one", `DELETE FROM owned_one`, rebuild.Checking},
		"an earlier one afterwards": {
			"begin checking type one", `UPDATE one SET version = version + 3, body = 'newest', updated_at = now() - interval '10 min'`, rebuild.Checking,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 150)
			var before []string
			rows := func(table string) []string {
				return ask[string](t, f, `SELECT `+table+`::text FROM `+table+` ORDER BY a`)
			}
			f.at = func(step string) {
				if step == tc.at {
					f.at = func(string) {}
					f.exec(t, tc.damage)
					before = rows("one")
				}
			}
			for range 2 {
				_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
				if !errors.Is(err, rebuild.ErrLosses) {
					t.Fatalf("%v", err)
				}
				f.phase(t, tc.want)
				if !slices.Equal(rows("one"), before) {
					t.Error("the served rows have changed")
				}
			}
			if n := ask[int64](t, f, `SELECT count(*) FROM one_shadow WHERE deleted_at IS NULL`)[0]; n != 150 {
				t.Errorf("%d rows of 150 are in the shadow", n)
			}
			o := rebuild.Options{AcceptLosses: true, Comparison: reconcile.Options{Grace: time.Second}}
			if r, err := f.Run(t.Context(), ada, o, f); err != nil || r.Repaired+r.RepairedAfter != 150 {
				t.Errorf("accepted: %+v, %v", r, err)
			}
			f.phase(t, rebuild.Done)
			f.exec(t, `DELETE FROM one WHERE deleted_at IS NOT NULL`)
			f.same(t, "one", "two")
		})
	}
}

// Another owner while the served rows are checked costs none of them, of any type, and neither
// does it bring rows: after the exchange a rollback would undo nothing of it. With the right one
// the rebuild goes on.
func TestAnotherOwnerWhileChecking(t *testing.T) {
	t.Parallel()
	const others = `UPDATE owned_%[1]s SET body = 'another'; UPDATE owned_%[1]s SET a = gen_random_uuid(), last_event_id = gen_random_uuid() WHERE version > 1`
	for name, damage := range map[string]string{
		"its rows":                 fmt.Sprintf(others, "one"),
		"its rows of another type": `UPDATE owned_one SET body = 'another';` + fmt.Sprintf(others, "two"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 150)
			f.exec(t, `CREATE TABLE right_one AS TABLE owned_one; CREATE TABLE right_two AS TABLE owned_two`)
			f.at = func(step string) {
				if step == "begin checking type one" {
					f.at = func(string) {}
					f.exec(t, damage)
				}
			}
			for range 2 {
				_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
				if !errors.Is(err, rebuild.ErrLosses) {
					t.Fatal(err)
				}
				f.phase(t, rebuild.Checking)
			}
			for _, at := range []string{"one", "two"} {
				f.exec(t, fmt.Sprintf(`DELETE FROM owned_%[1]s; INSERT INTO owned_%[1]s TABLE right_%[1]s`, at))
			}
			f.same(t, "one", "one_shadow", "two", "two_shadow")
			if r := f.run(t); r.RepairedAfter != 0 {
				t.Errorf("with the right owner: %+v", r)
			}
			f.phase(t, rebuild.Done)
		})
	}
}

// The wrong owner has more rows than the read model. They do not hide that it lacks nearly all
// of the read model's: not in the shadow, which has them by the time of the comparison, and not in
// the served table, whose repair adds them if the owner is another one since the decision.
func TestALargerWrongOwner(t *testing.T) {
	t.Parallel()
	const damage = `DELETE FROM owned_one;
		INSERT INTO owned_one (a, body, version, updated_at) SELECT gen_random_uuid(), 'another', 1, now() - interval '1 h' FROM generate_series(1, 5000)`
	for name, tc := range map[string]struct {
		at   string
		nth  int
		want rebuild.Phase
	}{
		"from the begin":       {"fill one", 1, rebuild.Comparing},
		"after the exchange":   {"begin checking type one", 1, rebuild.Checking},
		"after the comparison": {"begin checking type one", 2, rebuild.Checking},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, 150)
			f.exec(t, `CREATE TABLE before AS TABLE one`)
			n := 0
			f.at = func(step string) {
				if step != tc.at {
					return
				}
				n++
				if n == 1 && tc.nth == 2 {
					f.exec(t, `UPDATE one SET body = 'wrong' WHERE version = 3`)
				}
				if n == tc.nth {
					f.exec(t, damage)
				}
			}
			_, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
			if !errors.Is(err, rebuild.ErrLosses) {
				t.Fatal(err)
			}
			f.phase(t, tc.want)
			if n := ask[int64](t, f, `SELECT count(*) FROM before JOIN one USING (a) WHERE one.deleted_at IS NULL`)[0]; n != 150 {
				t.Errorf("%d of 150 rows are left", n)
			}
		})
	}
}

// undated is an owner that does not know as of when its answers are.
type undated struct{ reconcile.Owner }

func (u undated) Page(ctx context.Context, d reconcile.Definition, r reconcile.Range) (reconcile.Page, error) {
	p, err := u.Owner.Page(ctx, d, r)
	p.AsOf = time.Time{}
	return p, err
}

// A rebuild is not done while rows could not be compared.
func TestRowsThatCannotBeCompared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	a, b := f.part(one), f.part(two)
	owner := a.After.Owner
	a.After.Owner = undated{owner}
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	f.at = func(step string) {
		if step == "begin checking type one" {
			f.exec(t, `UPDATE one SET version = version - 1, body = 'wrong' WHERE version = 3`)
		}
	}
	r, err := f.Run(t.Context(), ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
	if !errors.Is(err, rebuild.ErrUnsettled) || r.Unsettled != 10 {
		t.Errorf("%+v, %v", r, err)
	}
	f.phase(t, rebuild.Checking)
	a.After.Owner, f.at = owner, func(string) {}
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	if r := f.run(t); r.Unsettled != 0 || r.RepairedAfter != 10 {
		t.Errorf("%+v", r)
	}
	f.same(t, "one", "two")
}

// lagging is a replica that has not reached the begin of the rebuild, for some pages.
type lagging struct {
	model

	pages int
}

func (l *lagging) Fill(ctx context.Context, from string) (projection.Filled, error) {
	f, err := l.model.Fill(ctx, from)
	l.pages--
	if l.pages >= 0 {
		f.AsOf = f.AsOf.Add(-time.Hour)
	}
	return f, err
}

// A page of before the rebuild is no page of it.
func TestAReplicaThatLags(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 50)
	a, b := f.part(one), f.part(two)
	a.Shadow = &lagging{model{f, one, rebuild.Shadow("one")}, 2}
	f.Rebuild = rebuild.New(f.admin, recount, a, b)
	pages := 0
	f.at = func(step string) {
		if step == "fill one" {
			pages++
		}
	}
	if r := f.run(t); pages != 3 || r.Filled != 100 {
		t.Errorf("%d pages were asked for, want 3; %+v", pages, r)
	}
}
