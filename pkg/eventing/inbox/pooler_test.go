package inbox

import (
	"errors"
	"testing"
	"time"

	"example.com/lockstep/pkg/eventing"
)

// Each statement runs in the mode in which pgx does not ask the server for the types of
// parameters, and each transaction in another session.
func TestBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.db = b.pg.Pool(t, b.pg.Pooled(t, b.pg.URL))
	c := b.consumer(t)
	failing := event("failing", 1)
	b.setSpoil(func(e eventing.Event) error {
		if e.ID == failing.ID {
			return eventing.Permanent(errors.New("teapot"))
		}
		return nil
	})
	b.setOwner("gap", 2)
	c.register(t.Context())
	a := event("a", 1)
	c.finish(t, delivered(a), delivered(event("gap", 3)), delivered(event("gap", 2)), delivered(failing))
	c.finish(t, delivered(a), c.again(a), c.again(event("b", 1)))
	reused := event("c", 1)
	reused.ID = a.ID
	c.finish(t, c.again(reused))
	given := c.again(event("given", 1))
	if err := c.markStarted(t.Context(), []*delivery{given}); err != nil || given.starts != 1 {
		t.Errorf("started %d times, %v", given.starts, err)
	}
	c.giveBack(t.Context(), given)
	returned := c.again(event("given", 1))
	returned.change.Event.ID, returned.startedBefore = given.id(), true
	if err := c.markStartedAgain(t.Context(), returned); err != nil || returned.starts != 1 {
		t.Errorf("started %d times again, %v", returned.starts, err)
	}
	if err := c.store.noteError(t.Context(), given, "why"); err != nil {
		t.Error(err)
	}
	if err := c.store.heartbeat(t.Context()); err != nil {
		t.Error(err)
	}
	if n := b.count(t, withDone); n != 4 {
		t.Errorf("%d events are done, want 4", n)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead'`); n != 1 || len(b.deadLettered("")) != 2 {
		t.Errorf("%d are dead, want 1 and the one with another's id: %v", n, b.deadLettered(""))
	}
	if n, err := purged(t, c, -time.Hour); err != nil || n != 4 {
		t.Errorf("%d purged, %v", n, err)
	}
	c.shutDown(t.Context(), nil)
	if n := b.count(t, `SELECT count(*) FROM inbox_runs`); n != 0 {
		t.Error("it has not left")
	}
}
