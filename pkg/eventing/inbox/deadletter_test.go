package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/jackc/pgx/v5/pgconn"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/txn"
)

func TestPoisonGoesToTheDeadLettersAndTheRestFlows(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bad := event("bad", 1)
	b.setSpoil(func(e eventing.Event) error {
		if e.ID == bad.ID {
			return eventing.Permanent(errors.New("title is a teapot"))
		}
		return nil
	})
	var batch []*delivery
	for i := range 20 {
		batch = append(batch, delivered(event(fmt.Sprint("good", i), 1)))
	}
	batch = append(batch, delivered(bad))
	b.consumer(t).finish(t, batch...)
	if n := b.count(t, withDone); n != 20 {
		t.Errorf("%d of 20 good events are done", n)
	}
	dead := b.deadLettered(bad.ID.String())
	if len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "teapot") {
		t.Fatalf("dead letters %v, want one with its reason", dead)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead' AND event_id = $1 AND last_error LIKE '%teapot%'`, bad.ID); n != 1 {
		t.Error("the inbox row does not say why")
	}
	// A dead event is no duplicate: once the cause is repaired it can be applied.
	b.setSpoil(nil)
	b.consumer(t).finish(t, delivered(bad))
	if n := b.count(t, effects, "bad"); n != 1 {
		t.Error("redriven event has no effect")
	}
}

func TestFailuresAndPanicsAreTriedAgainThenDeadLettered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	failing, panicking := event("failing", 1), event("panicking", 1)
	b.setSpoil(func(e eventing.Event) error {
		switch e.ID {
		case failing.ID:
			return errors.New("not today")
		case panicking.ID:
			panic("handler bug")
		}
		return nil
	})
	b.consume(t)
	b.publish(t, failing, panicking, event("good", 1))
	b.eventually(t, 1, version, "good")
	b.eventually(t, 2, `SELECT count(*) FROM inbox WHERE status = 'dead' AND attempts = $1`, maxAttempts)
	for _, e := range []eventing.Event{failing, panicking} {
		dead := b.deadLettered(e.ID.String())
		if len(dead) != 1 || dead[0].Attributes[AttrDeadLetterAttempts] != fmt.Sprint(maxAttempts) {
			t.Errorf("dead letters of %s: %v, want one after %d attempts", e.AggregateID, dead, maxAttempts)
		}
	}
}

func TestAMessageThatIsNoEventIsDeadLettered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.consume(t)
	b.publishRaw(t, &pubsubpb.PubsubMessage{Data: []byte("hello")})
	mismatch := event("a", 1).Message()
	mismatch.OrderingKey = "another"
	b.publishRaw(t, mismatch)
	b.publish(t, event("good", 1))
	b.eventually(t, 1, version, "good")
	b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'dead' AND last_error LIKE '%ordering key%'`)
	pgtest.Until(t, "the message without attributes, of which there is no row, is a dead letter", func() bool { return len(b.deadLettered("")) >= 2 })
	reasons := ""
	for _, m := range b.deadLettered("") {
		reasons += m.Attributes[AttrDeadLetterReason] + "\n"
	}
	if !strings.Contains(reasons, eventing.AttrEventID) {
		t.Errorf("reasons of the dead letters:\n%swant one that names the missing attribute", reasons)
	}
}

// The database refuses the mark of a dead letter for a while. The letter is published once.
func TestADeadLetterIsPublishedOnceWhileItCannotBeMarked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	b.execAdmin(t, `REVOKE INSERT, UPDATE ON app.inbox FROM app_service`)
	d := delivered(event("a", 1))
	reason := errors.New("not decodable")
	for range 3 {
		if err := c.deadLetterOnce(t.Context(), d, reason, 1); err == nil {
			t.Fatal("the mark was written")
		}
	}
	b.execAdmin(t, `GRANT INSERT, UPDATE ON app.inbox TO app_service`)
	if err := c.deadLetterOnce(t.Context(), d, reason, 1); err != nil {
		t.Fatal(err)
	}
	if n := len(b.deadLettered(d.id().String())); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}

// A dead letter is published and cannot be marked. An operator discards it meanwhile. The mark that is
// tried again does not make the row dead, because no dead letter is left.
func TestALateMarkRevivesNoDiscardedLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	b.execAdmin(t, `REVOKE INSERT, UPDATE ON app.inbox FROM app_service`)
	d := delivered(event("a", 1))
	reason := errors.New("not decodable")
	if err := c.deadLetterOnce(t.Context(), d, reason, 1); err == nil {
		t.Fatal("the mark was written")
	}
	b.execAdmin(t, `GRANT INSERT, UPDATE ON app.inbox TO app_service`)
	if done, err := c.store.hold(t.Context(), "a test", false, d); err != nil || len(done) > 0 {
		t.Fatalf("%v, %v", done, err)
	}
	b.execAdmin(t, `UPDATE app.inbox SET status = 'discarded', processed_at = now()`)
	if err := c.deadLetterOnce(t.Context(), d, reason, 1); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'discarded'`); n != 1 {
		t.Error("the row is dead again")
	}
	// The event comes again, and is a dead letter again.
	again := delivered(d.event())
	if err := c.deadLetterOnce(t.Context(), again, reason, 1); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead'`); n != 1 || len(b.deadLettered("")) != 2 {
		t.Errorf("%d rows are dead after %d dead letters", n, len(b.deadLettered("")))
	}
}

// Another instance, of a newer build, applies an event that this one is about to dead-letter.
func TestAnEventThatIsDoneIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	for name, invalid := range map[string]error{"not decodable here": errors.New("no"), "not known here": fmt.Errorf("type: %w", ErrUnknown)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			d := delivered(event("a", 1))
			b.consumer(t).finish(t, delivered(d.event()))
			d.invalid = invalid
			c := b.consumer(t)
			c.process(t.Context(), []*delivery{d})
			if errors.Is(invalid, ErrUnknown) && !d.finished {
				t.Error("it waits for a verdict")
			}
			c.finish(t)
			if dead := b.deadLettered(""); len(dead) != 0 || b.count(t, withDone) != 1 || !d.finished {
				t.Errorf("%d are done, finished %v, dead letters: %v", b.count(t, withDone), d.finished, dead)
			}
		})
	}
}

// The same after the event waited here for its verdict.
func TestAnEventThatIsDoneWhileItWaitsIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c, d := b.consumer(t), delivered(event("a", 1))
	if done := c.hold(t.Context(), "a test", d); len(done) > 0 || !d.held {
		t.Fatalf("held %t, done %v", d.held, done)
	}
	b.consumer(t).finish(t, delivered(d.event()))
	d.invalid, d.poison = ErrUnknown, true
	c.finish(t, d)
	if dead := b.deadLettered(""); len(dead) != 0 || b.count(t, withDone) != 1 || !d.finished {
		t.Errorf("%d are done, finished %v, dead letters: %v", b.count(t, withDone), d.finished, dead)
	}
}

// Another instance applies an event after it has failed here, and before the failure is counted.
func TestAnEventThatIsDoneMeanwhileIsNotDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	here, there := b.consumer(t), b.consumer(t)
	d := delivered(event("a", 1))
	b.setSpoil(func(eventing.Event) error { return eventing.Permanent(errors.New("an older build cannot")) })
	_, err := here.tryBatch(t.Context(), []*delivery{d})
	b.setSpoil(nil)
	there.finish(t, delivered(d.event()))
	here.eventFailed(t.Context(), d, err, here.classify(t.Context(), nil, err, time.Now()))
	here.finish(t)
	if dead := b.deadLettered(""); len(dead) != 0 || b.count(t, withDone) != 1 || !d.finished {
		t.Errorf("%d are done, finished %v, dead letters: %v", b.count(t, withDone), d.finished, dead)
	}
}

// Two instances have an event. One dead-letters and acknowledges it, and the other one then fails with it, and ends
// before its own dead letter. No message brings the event again, so its row must go on to name the dead letter, or
// the operator's decision: a held row would stay for ever, and with it the safe position of the checkpoints.
func TestAFailureElsewhereKeepsTheRowOfADeadLetter(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "discarded"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			here, there := b.consumer(t), b.consumer(t)
			d := delivered(event("a", 1))
			if err := there.deadLetterOnce(t.Context(), delivered(d.event()), errors.New("not decodable there"), 0); err != nil {
				t.Fatal(err)
			}
			b.execAdmin(t, `UPDATE app.inbox SET status = '`+status+`'`)
			ctx, end := context.WithCancel(t.Context())
			here.eventFailed(ctx, d, errors.New("no"), eventFault)
			if here.blocked.counts[failedEvent].Load() != 1 {
				t.Error("the event does not wait for its next attempt")
			}
			end()
			here.shutDown(t.Context(), here.blocked.all())
			if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = $1 AND attempts = 1`, status); n != 1 {
				t.Errorf("the row is not %s any more, with %d dead letters in the topic", status, len(b.deadLettered("")))
			}
		})
	}
}

// As in the test before, but the other instance meets a locked row, and puts the event off.
func TestAnEventThatIsPutOffElsewhereKeepsTheRowOfADeadLetter(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "discarded"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			here, there := b.consumer(t), b.consumer(t)
			d := delivered(event("a", 1))
			if err := there.deadLetterOnce(t.Context(), delivered(d.event()), errors.New("not decodable there"), 0); err != nil {
				t.Fatal(err)
			}
			b.execAdmin(t, `UPDATE app.inbox SET status = '`+status+`'`)
			ctx, end := context.WithCancel(t.Context())
			here.putOff(ctx, d, errors.New("locked"), locked)
			end()
			here.shutDown(t.Context(), here.blocked.all())
			if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = $1`, status); n != 1 {
				t.Errorf("the row is not %s any more, with %d dead letters in the topic", status, len(b.deadLettered("")))
			}
		})
	}
}

// As in the tests before, but the other instance finds a gap before the event. Once the owner has answered there, the
// event is applied, whatever its dead letter was.
func TestAGapElsewhereKeepsTheRowOfADeadLetter(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "discarded"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			here, there := b.consumer(t), b.consumer(t)
			gap, next := event("a", 2), event("b", 1)
			if err := there.deadLetterOnce(t.Context(), delivered(gap), errors.New("not decodable there"), 0); err != nil {
				t.Fatal(err)
			}
			b.execAdmin(t, `UPDATE app.inbox SET status = '`+status+`', begun = 1`)
			want := b.entry(t, gap)
			want.Begun = 0 // the process did not end
			d := delivered(gap)
			outcomes, err := here.tryBatch(t.Context(), []*delivery{d, delivered(next)})
			if err != nil || outcomes[gap.ID] != Gap || outcomes[next.ID] != Applied {
				t.Fatalf("%v, %v", outcomes, err)
			}
			if got := b.entry(t, gap); got != want {
				t.Errorf("the row is %+v, want %+v", got, want)
			}
			b.setOwner("a", 2)
			here.finish(t, d)
			const applied = `SELECT count(*) FROM inbox WHERE event_id = $1 AND status = 'done' AND processed_at IS NOT NULL AND begun = 0`
			if n := b.count(t, applied, gap.ID); n != 1 || !d.finished {
				t.Errorf("finished %t after the owner's answer, and the row is %+v", d.finished, b.entry(t, gap))
			}
		})
	}
}

// A dead event comes again, while an operator discards its dead letter. The next dead letter is
// published after the operator's transaction, so that its row shows it.
func TestADeadLetterWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	reason := errors.New("not decodable")
	first := delivered(event("a", 1))
	if err := c.deadLetterOnce(t.Context(), first, reason, 0); err != nil {
		t.Fatal(err)
	}
	operator := pgtest.Begin(t, b.pg.Pool(t, b.pg.Admin))
	defer func() { _ = operator.Rollback(context.WithoutCancel(t.Context())) }()
	pgtest.Exec(t, operator, `UPDATE app.inbox SET status = 'discarded', processed_at = now()`)
	again := delivered(first.event()) // the ack was lost
	if err := c.deadLetterOnce(t.Context(), again, reason, 0); !txn.IsLockTimeout(err) || len(b.deadLettered("")) != 1 {
		t.Errorf("%v, %d dead letters, want the first alone while the row is locked", err, len(b.deadLettered("")))
	}
	pgtest.End(t, operator.Commit)
	if err := c.deadLetterOnce(t.Context(), again, reason, 0); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead'`); n != 1 || len(b.deadLettered("")) != 2 {
		t.Errorf("%d dead rows after %d dead letters", n, len(b.deadLettered("")))
	}
}

// The answer to a COMMIT was lost, and the event is found done when its row is to be written. The
// readers that wait for the event are told. An event that was not tried here is no news.
func TestReadersAreToldOfAnEventThatIsFoundDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	locked := &pgconn.PgError{Code: "55P03"}
	for name, settle := range map[string]func(c *Consumer, d *delivery) error{
		"put off": func(c *Consumer, d *delivery) error {
			c.eventFailed(t.Context(), d, locked, faultOf(locked))
			return nil
		},
		"failed": func(c *Consumer, d *delivery) error {
			c.eventFailed(t.Context(), d, errors.New("no"), eventFault)
			return nil
		},
		"unknown": func(c *Consumer, d *delivery) error {
			d.invalid = ErrUnknown
			c.process(t.Context(), []*delivery{d})
			return nil
		},
		"dead": func(c *Consumer, d *delivery) error { return c.deadLetterOnce(t.Context(), d, errors.New("no"), 1) },
	} {
		for _, tried := range []bool{true, false} {
			c, d := b.consumer(t), delivered(event(name+fmt.Sprint(tried), 1))
			b.consumer(t).finish(t, delivered(d.event()))
			var told []string
			c.functions().committed = func(keys ...string) { told = append(told, keys...) }
			d.tried = tried
			if err := settle(c, d); err != nil || !d.finished || slices.Contains(told, d.key()) != tried {
				t.Errorf("%s, tried %t: %v; finished %t, readers are told of %v", name, tried, err, d.finished, told)
			}
		}
	}
	if dead := b.deadLettered(""); len(dead) != 0 {
		t.Errorf("dead letters of events that are done: %v", dead)
	}
}
