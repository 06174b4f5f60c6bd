package services_test

import (
	"os"
	"testing"
)

// TestBehindATransactionPooler runs the stories that depend most on the database where
// no session lasts and no notification arrives, and executes the runbook's commands
// there. LOCKSTEP_FULL=1 runs it, in .ci/full; the library has tests of its own behind a pooler.
func TestBehindATransactionPooler(t *testing.T) {
	if os.Getenv("LOCKSTEP_FULL") == "" {
		t.Skip("LOCKSTEP_FULL=1 tells the stories behind a pooler, too")
	}
	t.Parallel()
	b := sharedBroker(t)
	for name, run := range map[string]func(t *testing.T, w *world){
		"a write is read fresh":                   writeIsReadFresh,
		"the owner answers":                       ownerAnswersWhenBehind,
		"a session sees its writes":               sessionSeesItsWrites,
		"events out of order end right":           disorderEndsRight,
		"a gap is repaired from the owner":        gapIsRepaired,
		"an engagement comes, goes and returns":   engagementReturns,
		"a session sees its engagements":          sessionSeesItsEngagements,
		"the database fails over":                 databaseFailsOver,
		"an operator retries, redrives, gives up": runbook,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, b)
			w.pg.VideoURL, w.pg.CatalogURL = w.pg.Pooled(t, w.pg.VideoURL), w.pg.Pooled(t, w.pg.CatalogURL)
			w.recordVersions(t)
			run(t, w)
		})
	}
}
