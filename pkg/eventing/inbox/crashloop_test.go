package inbox

import (
	"errors"
	"fmt"
	"testing"

	"example.com/lockstep/pkg/eventing"
)

// redelivered is another delivery of d's event, with the broker's count.
func redelivered(d *delivery, attempt int) *delivery {
	again := delivered(d.event())
	again.messages[0].DeliveryAttempt = &attempt
	return again
}

// An event is delivered again and again while its aggregate is blocked. No process applies it, so
// none of these deliveries counts as a start of it.
func TestDeliveriesOfABlockedEventAreNoStarts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	d := delivered(event("a", 2)) // a gap, and the owner is away
	for n := range maxStarts + 2 {
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(d, n+1)}))
	}
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, d.id()); n != 0 {
		t.Errorf("%d starts are recorded", n)
	}
	b.setOwner("a", 2)
	c.finish(t)
	if dead := b.deadLettered(""); len(dead) != 0 || b.count(t, withDone) != 1 {
		t.Errorf("%d are done, dead letters: %v", b.count(t, withDone), dead)
	}
}

// Processes are killed for another reason while an event waits behind a gap.
func TestAnEventThatWaitsIsNoKiller(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head, behind := delivered(event("a", 2)), delivered(event("a", 3))
	for n := range maxStarts + 2 {
		c := b.consumer(t)
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(head, n+2)}))
		c.process(t.Context(), mergeDuplicates([]*delivery{redelivered(behind, n+2)}))
	}
	c := b.consumer(t)
	b.setOwner("a", 2)
	c.finish(t, redelivered(head, maxStarts+4), redelivered(behind, maxStarts+4))
	if v, dead := b.count(t, version, "a"), b.deadLettered(""); v != 3 || len(dead) != 0 {
		t.Errorf("the model is at version %d, want 3; dead letters: %v", v, dead)
	}
}

// A process was killed while it applied two events of an aggregate. The first one turns out to wait
// for the owner. The second one is not tried before it, so it is not started again either.
func TestAnEventBehindABlockedOneIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	head, behind := delivered(event("a", 2)), delivered(event("a", 3))
	if err := b.consumer(t).markStarted(t.Context(), []*delivery{redelivered(head, 2), redelivered(behind, 2)}); err != nil {
		t.Fatal(err)
	}
	for n := range maxStarts + 2 {
		b.consumer(t).process(t.Context(), mergeDuplicates([]*delivery{redelivered(head, n+3), redelivered(behind, n+3)}))
	}
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, behind.id()); n != 1 {
		t.Errorf("%d starts of the event behind are recorded, want the one in the process that was killed", n)
	}
}

// lockInboxRow locks an event's inbox row until unlock is called.
func (b *bench) lockInboxRow(t *testing.T, d *delivery) (unlock func()) {
	t.Helper()
	return b.lockOne(t, `SELECT FROM app.inbox WHERE event_id = $1 FOR UPDATE`, d.id())
}

// Another session holds the inbox row of an event that is delivered again. The event is put off, and
// the other events of its batch are applied, with their starts recorded.
func TestALockedInboxRowHoldsUpItsEventAlone(t *testing.T) {
	t.Parallel()
	for name, starts := range map[string]int{"not started before": 0, "started before": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c := b.consumer(t)
			d := delivered(event("a", 1))
			if _, _, err := c.store.writeUnfinished(t.Context(), d, "held", "a test", 0); err != nil {
				t.Fatal(err)
			}
			b.execAdmin(t, fmt.Sprintf(`UPDATE app.inbox SET begun = %d`, starts))
			unlock := b.lockInboxRow(t, d)
			batch := []*delivery{redelivered(d, 2)}
			for i := range 6 {
				batch = append(batch, redelivered(delivered(event(fmt.Sprint("free", i), 1)), 2))
			}
			var started int
			b.setSpoil(func(eventing.Event) error {
				started = max(started, b.count(t, `SELECT count(*) FROM app.inbox WHERE begun = 1 AND event_id <> $1`, d.id()))
				return nil
			})
			if left := c.process(t.Context(), mergeDuplicates(batch)); len(left) != 0 {
				t.Fatalf("%d are left", len(left))
			}
			if n := b.count(t, withDone); n != 6 || batch[0].putOffs != 1 || started != 6 {
				t.Errorf("%d are applied and %d have a recorded start, want 6; the locked one is put off %d times", n, started, batch[0].putOffs)
			}
			again := redelivered(d, 3)
			again.startedBefore = true
			if err := c.markStartedAgain(t.Context(), again); err != nil || again.starts != 0 {
				t.Errorf("alone: %d starts, %v", again.starts, err)
			}
			unlock()
			c.finish(t)
			if n := b.count(t, withDone); n != 7 {
				t.Errorf("%d are done after the lock", n)
			}
		})
	}
}

// An event is put off again and again, and the row cannot be written to take its start back. The
// start is not counted a second time.
func TestAStartThatIsNotTakenBackIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	d := redelivered(delivered(event("a", 1)), 2)
	if err := c.markStarted(t.Context(), []*delivery{d}); err != nil {
		t.Fatal(err)
	}
	revoked := func() (undo func()) {
		b.execAdmin(t, `REVOKE UPDATE ON app.inbox FROM app_service`)
		return func() { b.execAdmin(t, `GRANT UPDATE ON app.inbox TO app_service`) }
	}
	inUse := func() (undo func()) { return b.lockInboxRow(t, d) }
	putOff := func() { c.putOff(t.Context(), d, errors.New("a lock"), locked) }
	failed := func() { c.eventFailed(t.Context(), d, errors.New("no"), eventFault) }
	for name, end := range map[string]struct {
		prevent func() (undo func())
		end     func()
	}{
		"put off": {revoked, putOff}, "put off in a lock": {inUse, putOff}, "failed": {revoked, failed},
	} {
		undo := end.prevent()
		end.end()
		c.blocked.unblock(<-c.blocked.released)
		undo()
		if err := errors.Join(c.markStarted(t.Context(), []*delivery{d}), c.markStartedAgain(t.Context(), d)); err != nil {
			t.Fatal(err)
		}
		if n := b.count(t, `SELECT begun FROM inbox`); n != 1 {
			t.Errorf("%s: %d starts are recorded", name, n)
		}
	}
	c.finish(t, d)
	if n := b.count(t, `SELECT begun FROM inbox WHERE status = 'done'`); n != 0 {
		t.Errorf("%d starts are left", n)
	}
}

// A process ends well with an event in hand whose inbox row another session has locked. The starts of
// the other events are taken back.
func TestALockedInboxRowKeepsNoOtherStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	d, other := redelivered(delivered(event("a", 1)), 2), redelivered(delivered(event("b", 1)), 2)
	if err := c.markStarted(t.Context(), []*delivery{d, other}); err != nil {
		t.Fatal(err)
	}
	b.lockInboxRow(t, d)
	c.giveBack(t.Context(), d, other)
	if n := b.count(t, `SELECT begun FROM inbox WHERE event_id = $1`, other.id()); n != 0 {
		t.Errorf("%d starts are left", n)
	}
}
