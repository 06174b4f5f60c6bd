package inbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/internal/pgtest"
)

// A build that is older than its stream blocks the unknown events, and the next build finds
// all of them.
func TestADeploymentInTheWrongOrderDeadLettersNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	heard := &complaints{}
	c := b.consumer(t)
	c.log = slog.New(heard)
	known := c.functions().decode
	c.functions().decode = decode
	var old, all []*delivery
	for i := range 3 * maxUnknown {
		e := event(fmt.Sprint("a", i), 1)
		e.SchemaVersion = 2
		m := e.Message()
		old = append(old, c.handler.newDelivery(&pubsub.Message{ID: fmt.Sprint(i), Data: m.Data, Attributes: m.Attributes}))
		e.SchemaVersion = 1 // as the next build reads it
		all = append(all, delivered(e))
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.process(ctx, mergeDuplicates(append(old, delivered(event("known", 1)))))
	pgtest.Until(t, "said that the build is taken for wrong", func() bool { return heard.n.Load() > 0 })
	pgtest.Until(t, "all of their aggregates are held", func() bool { return c.blocked.counts[unknownEvent].Load() == int64(len(old)) })
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'held'`); n != len(old) || len(b.deadLettered("")) != 0 {
		t.Errorf("%d rows are held, %d dead letters", n, len(b.deadLettered("")))
	}
	if v := b.count(t, version, "known"); v != 1 {
		t.Error("what the build knows is not applied")
	}
	cancel()
	c.shutDown(ctx, c.blocked.all())
	next := b.consumer(t)
	next.functions().decode = known
	next.finish(t, all...)
	if n := b.count(t, withDone); n != len(all)+1 || len(b.deadLettered("")) != 0 {
		t.Errorf("%d are done by the next build, %d dead letters", n, len(b.deadLettered("")))
	}
}

// The rows of unknown events cannot be written at first. They are written later, while the events
// wait, and an event that another instance has applied is acknowledged.
func TestUnknownEventsAreHeldLater(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	b.execAdmin(t, `REVOKE INSERT ON app.inbox FROM app_service`)
	var batch []*delivery
	for i := range maxUnknown + 1 {
		d := delivered(event(fmt.Sprint("a", i), 1))
		d.invalid = fmt.Errorf("type: %w", ErrUnknown)
		batch = append(batch, d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c.process(ctx, slices.Clone(batch))
	b.execAdmin(t, `GRANT INSERT ON app.inbox TO app_service`)
	b.consumer(t).finish(t, delivered(batch[0].event()))
	b.eventually(t, maxUnknown, `SELECT count(*) FROM inbox WHERE status = 'held'`)
	c.process(ctx, c.blocked.unblock(<-c.blocked.released))
	cancel()
	c.shutDown(ctx, c.blocked.all())
	if !batch[0].finished || len(b.deadLettered("")) != 0 || b.count(t, withDone) != 1 {
		t.Errorf("finished %t; %d dead letters; %d are done", batch[0].finished, len(b.deadLettered("")), b.count(t, withDone))
	}
}

// An event whose turn to write its row does not come goes on without the row, so that its verdict
// does not wait for the rows of other events.
func TestRowsOfUnknownEventsTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, d := b.consumer(t), delivered(event("a", 1))
	if err := c.blocked.holdSlot.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{0, 1} {
		if done := c.holdLater(t.Context(), d); done || b.count(t, `SELECT count(*) FROM inbox`) != rows {
			t.Errorf("done %t; %d rows, want %d", done, b.count(t, `SELECT count(*) FROM inbox`), rows)
		}
		if rows == 0 {
			c.blocked.holdSlot.Release(1)
		}
	}
}

func TestUnknownEventIsPoisonOrFromANewerBuild(t *testing.T) {
	t.Parallel()
	few, many := newUnknowns(), newUnknowns()
	since := few.enter("a")
	if is, _ := few.poison(since, false); is {
		t.Error("poison at once, before others were heard of")
	}
	if is, _ := few.poison(since, true); !is {
		t.Error("not poison, though nothing else came of its kind for all that time")
	}
	for i := range maxUnknown {
		many.enter(fmt.Sprint(i))
	}
	if is, _ := many.poison(0, true); is {
		t.Error("one of many, and poison")
	}
	_, changed := many.poison(0, true)
	many.success(maxUnknown*knownPerUnknown - 1)
	if is, _ := many.poison(0, true); is {
		t.Error("poison before known events outnumber it")
	}
	many.success(1)
	<-changed
	if is, _ := many.poison(0, false); !is {
		t.Error("not poison, though known events outnumber it by far")
	}
	if n, now := many.warnDue(); n != maxUnknown || !now {
		t.Errorf("warns of %d, %v", n, now)
	}
	if _, now := many.warnDue(); now {
		t.Error("warns again at once")
	}
	many.leave("0")
	few.leave("a")
	if _, now := many.warnDue(); now || len(few.keys) != 0 {
		t.Error("left, and still there")
	}
}

// Waiting events are asked for a verdict when enough known events were handled since they came. Those that
// were handled before do not count, or each later event would wake all of them.
func TestKnownEventsBeforeAnUnknownOneWakeNobody(t *testing.T) {
	t.Parallel()
	u := newUnknowns()
	u.success(1000)
	since := u.enter("a")
	_, changed := u.poison(since, false)
	for range knownPerUnknown {
		select {
		case <-changed:
			t.Fatal("woken too early")
		default:
		}
		u.success(1)
	}
	select {
	case <-changed:
	default:
		t.Error("not woken")
	}
	if is, _ := u.poison(since, false); !is {
		t.Error("no poison, although enough known events were handled")
	}
}
