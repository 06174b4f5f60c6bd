package inbox

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

// entry is an inbox row.
type entry struct {
	Status, Source, Message, Error string
	Settled                        bool // processed_at is there
	Attempts, Begun                int
}

func (b *bench) entry(t *testing.T, e eventing.Event) entry {
	t.Helper()
	rows, _ := b.db.Query(t.Context(), `
		SELECT status, source, message_id AS message, coalesce(last_error, '') AS error, processed_at IS NOT NULL AS settled, attempts, begun
		  FROM inbox WHERE event_id = $1`, e.ID)
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[entry])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// brought is e as the message with this id brings it.
func brought(e eventing.Event, id string) *delivery {
	d := delivered(e)
	d.messages[0].ID = id
	return d
}

// The row of an event follows it: it says why the event waits, and later which message
// brought the effect.
func TestARowFollowsItsEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	e := event("a", 1)
	want := func(when string, want entry) {
		t.Helper()
		if got := b.entry(t, e); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	if _, _, err := c.store.markStarted(t.Context(), []*delivery{brought(e, "first")}, maxLockWait); err != nil {
		t.Fatal(err)
	}
	want("begun", entry{Status: "held", Source: "stream", Message: "first", Begun: 1})
	if n, _, err := c.store.countAttempt(t.Context(), brought(e, "first"), errors.New("not yet"), eventFault); n != 1 || err != nil {
		t.Fatalf("%d attempts, %v", n, err)
	}
	want("after a failure", entry{Status: "held", Source: "stream", Message: "first", Error: "failed: not yet", Attempts: 1})
	if _, err := b.db.Exec(t.Context(), `UPDATE inbox SET source = 'redrive'`); err != nil { // as an operator does
		t.Fatal(err)
	}
	c.finish(t, brought(e, "second"))
	done := entry{Status: "done", Source: "stream", Message: "second", Error: "failed: not yet", Settled: true, Attempts: 1}
	want("applied", done)
	if err := c.store.noteError(t.Context(), brought(e, "third"), "gap: late"); err != nil {
		t.Fatal(err)
	}
	want("the late error of a gap", done)
	if err := c.store.markDead(t.Context(), brought(e, "third"), errors.New("late")); err != nil {
		t.Fatal(err)
	}
	done.Error = "late"
	want("a late dead letter", done)
	if _, err := c.store.unmarkStarted(t.Context(), []*delivery{brought(e, "third")}); err != nil {
		t.Fatal(err)
	}
	want("a late return", done)

	// No repair can run: a failed one would write its error to the row.
	if err := c.blocked.repairSlots.Acquire(t.Context(), slotCount); err != nil {
		t.Fatal(err)
	}
	e = event("b", 2) // a gap
	c.process(t.Context(), []*delivery{brought(e, "first")})
	want("at a gap", entry{Status: "held", Source: "stream", Message: "first", Error: "waiting for a repair from the owner"})
}

// An event that starts for the first time differs from one that started before and did not
// end. An event that is done is neither.
func TestMarkStartedSeparatesTheFirstStartFromTheSecond(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	done, old, fresh := delivered(event("done", 1)), delivered(event("old", 1)), delivered(event("new", 1))
	duplicate := delivered(fresh.event())
	duplicate.change.Event.AggregateID = "of the same id"
	c.finish(t, delivered(done.event()))
	if _, _, err := c.store.markStarted(t.Context(), []*delivery{old}, maxLockWait); err != nil {
		t.Fatal(err)
	}
	first, before, err := c.store.markStarted(t.Context(), []*delivery{done, old, fresh, duplicate}, maxLockWait)
	if err != nil || len(first) != 1 || first[fresh] == first[duplicate] {
		t.Errorf("first %v, %v; want one of the two with one id", first, err)
	}
	if len(before) != 1 || !before[old] {
		t.Errorf("before %v; want the one that began before", before)
	}
	if again := b.entry(t, old.event()); again.Begun != 1 {
		t.Errorf("started %d times", again.Begun)
	}
	if n, err := c.store.markStartedAgain(t.Context(), old, maxLockWait); n != 2 || err != nil {
		t.Errorf("alone: started %d times, %v", n, err)
	}
	// Meanwhile another consumer may have finished it, and its row been purged.
	pgtest.Exec(t, b.db, `DELETE FROM inbox WHERE event_id = $1`, old.id())
	if n, err := c.store.markStartedAgain(t.Context(), old, maxLockWait); n != 0 || err != nil {
		t.Errorf("purged: started %d times, %v", n, err)
	}
}

// No statement about one event touches the row of another that has its id.
func TestNoStatementTakesTheRowOfAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	mine := event("a", 1)
	if _, _, err := c.store.markStarted(t.Context(), []*delivery{delivered(mine)}, maxLockWait); err != nil {
		t.Fatal(err)
	}
	was, other := b.entry(t, mine), brought(mine, "other")
	other.change.Event.Version = 2
	for name, statement := range map[string]func() error{
		"note":          func() error { return c.store.noteError(t.Context(), other, "gap") },
		"unmarkStarted": func() error { _, err := c.store.unmarkStarted(t.Context(), []*delivery{other}); return err },
		"markDead":      func() error { return c.store.markDead(t.Context(), other, errors.New("hopeless")) },
		"begin": func() error {
			first, before, err := c.store.markStarted(t.Context(), []*delivery{other}, maxLockWait)
			if len(first)+len(before) > 0 {
				t.Errorf("first %v, before %v", first, before)
			}
			return err
		},
		"markStartedAgain": func() error {
			n, err := c.store.markStartedAgain(t.Context(), other, maxLockWait)
			if n != 0 {
				t.Errorf("started %d times", n)
			}
			return err
		},
		"attempt": func() error {
			_, _, err := c.store.countAttempt(t.Context(), other, errors.New("not yet"), eventFault)
			return err
		},
	} {
		if err := statement(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := b.entry(t, mine); got != was {
			t.Errorf("after %s: %+v, was %+v", name, got, was)
		}
	}
}

// A run that goes on shows it, and is not forgotten as one that ended badly long ago.
func TestALivingInstanceIsRemembered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	c.register(t.Context())
	pgtest.Exec(t, b.db, `UPDATE inbox_runs SET seen_at = now() - interval '1 day'`)
	if err := c.store.heartbeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox_runs WHERE run = $1 AND seen_at > now() - interval '1 hour'`, c.store.instance); n != 1 {
		t.Error("it is forgotten, or looks as if it had ended")
	}
}
