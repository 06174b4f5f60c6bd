package rebuild_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
	"example.com/lockstep/pkg/eventing/reconcile"
)

// Postgres ends the session of a command before each of its statements in turn. The command fails, or has its whole
// effect. Called again until it succeeds, it has the effect of one call, and one entry in the audit table.
func TestACommandIsInterrupted(t *testing.T) {
	t.Parallel()
	run := func(ctx context.Context, f *fixture) error {
		_, err := f.Run(ctx, ada, rebuild.Options{Comparison: reconcile.Options{Grace: time.Second}}, f)
		return err
	}
	for name, tc := range map[string]struct {
		after   rebuild.Phase // before the command
		command func(ctx context.Context, f *fixture) error
		want    rebuild.Phase
	}{
		"run":      {rebuild.None, run, rebuild.Done},
		"rollback": {rebuild.Done, func(ctx context.Context, f *fixture) error { return f.Rollback(ctx, ada) }, rebuild.RolledBack},
		"finish":   {rebuild.Done, func(ctx context.Context, f *fixture) error { return f.Finish(ctx, ada, false) }, rebuild.None},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			pgtest.EachStatement(t, func(t *testing.T, i *pgtest.Interruption) {
				f := newFixture(t, 150)
				f.connect(t, i)
				f.exec(t, `UPDATE one SET body = 'wrong' WHERE version = 1`)
				f.exec(t, `DELETE FROM two WHERE version = 2`)
				if tc.after == rebuild.Done {
					f.run(t)
				}
				i.Begin()
				err := tc.command(t.Context(), f)
				if interrupted := i.End(); !interrupted && err != nil {
					t.Fatal(err)
				}
				if err != nil {
					t.Logf("interrupted: %v", err)
					if err = tc.command(t.Context(), f); errors.Is(err, rebuild.ErrPhase) {
						t.Logf("called again: %v", err)
						err = nil // it had come to its end
					}
				}
				if err != nil {
					t.Errorf("called again: %v", err)
				}
				f.phase(t, tc.want)
				if tc.want != rebuild.RolledBack {
					f.same(t, "one", "two")
				}
				f.serve(t, `UPDATE one SET updated_at = now()`)
				got := ask[string](t, f, `SELECT concat_ws(' ', count(*), action, aggregate_type) AS line FROM operator_actions GROUP BY action, aggregate_type ORDER BY 1`)
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) {
					t.Errorf("the entries in the audit table are %q, want %q", got, want)
				}
			})
		})
	}
}
