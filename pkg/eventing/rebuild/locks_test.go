package rebuild_test

import (
	"testing"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing/rebuild"
)

// After the statement that takes the locks for which reads or events wait, only COMMIT is sent. With more statements, they would
// wait for more round trips to a database that is far away.
func TestLocksAreHeldForOneRoundTrip(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 10)
	sent := pgtest.NewStatements()
	f.connect(t, sent)
	for _, step := range []struct {
		name  string
		do    func() error
		locks []string
	}{
		{
			"run", func() error { _, err := f.Run(t.Context(), ada, rebuild.Options{}, f); return err },
			[]string{"CREATE TRIGGER mirror_inserted", "ACCESS EXCLUSIVE"},
		},
		{"rollback", func() error { return f.Rollback(t.Context(), ada) }, []string{"ACCESS EXCLUSIVE"}},
		{"finish", func() error { return f.Finish(t.Context(), ada, false) }, []string{"ACCESS EXCLUSIVE"}},
	} {
		sent.Forget()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		for _, lock := range step.locks {
			if next, _ := sent.After(lock); next != "commit" {
				t.Errorf("%s sends %.60q after %s, want commit", step.name, next, lock)
			}
		}
	}
}
