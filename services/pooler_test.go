package services_test

import (
	"os"
	"testing"

	"example.com/lockstep/internal/pgtest/pairtest"
)

// TestBehindATransactionPooler runs the stories that depend most on the database where
// no session lasts and no notification arrives, and executes the runbook's commands
// there: behind PgBouncer, where it is installed, and behind a pooler that keeps less of a session than any
// real one. LOCKSTEP_FULL=1 runs it, in .ci/full; the library has tests of its own behind a pooler.
func TestBehindATransactionPooler(t *testing.T) {
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("LOCKSTEP_FULL=1 tells the stories behind a pooler, too")
	}
	t.Parallel()
	b := sharedBroker(t)
	stories := map[string]func(t *testing.T, w *world){
		"a write is read fresh":                   writeIsReadFresh,
		"the owner answers":                       ownerAnswersWhenBehind,
		"a session sees its writes":               sessionSeesItsWrites,
		"events out of order end right":           disorderEndsRight,
		"a gap is repaired from the owner":        gapIsRepaired,
		"an engagement comes, goes and returns":   engagementReturns,
		"a session sees its engagements":          sessionSeesItsEngagements,
		"the database fails over":                 databaseFailsOver,
		"an operator retries, redrives, gives up": runbook,
	}
	for name, pooled := range map[string]func(*pairtest.DB, testing.TB, string) string{
		"any pooler": (*pairtest.DB).Pooled, "PgBouncer": (*pairtest.DB).PgBouncer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for story, run := range stories {
				t.Run(story, func(t *testing.T) {
					t.Parallel()
					w := newWorld(t, b)
					w.pg.VideoURL, w.pg.CatalogURL = pooled(w.pg, t, w.pg.VideoURL), pooled(w.pg, t, w.pg.CatalogURL)
					w.recordVersions(t)
					run(t, w)
				})
			}
		})
	}
}
