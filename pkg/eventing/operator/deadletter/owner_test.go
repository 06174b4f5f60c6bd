package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/inbox"
	"example.com/lockstep/pkg/eventing/txn"
)

// The discarded event may be its aggregate's last one, so its aggregate takes
// the owner's state at once. While the owner is unavailable, the dead letter
// stays.
func TestDiscardTakesTheOwnersState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 1)
	b.deadLetter(t, e)
	h := b.collect(t)
	err := h.Discard(t.Context(), order, h.Letters[0])
	if err == nil || !strings.Contains(err.Error(), "owner is away") || b.count(t, withStatus, "dead") != 1 || b.count(t, withAction, "discard") != 0 {
		t.Errorf("discard without the owner: %v; want the dead letter to stay", err)
	}
	b.set(func() { b.owner["a"], b.committed, b.failing[acknowledge] = 1, nil, true })
	if err := h.Discard(t.Context(), order, h.Letters[0]); err == nil {
		t.Error("the error of the acknowledgement is lost")
	}
	if b.effects(t, "a") != "r" || b.count(t, withStatus, "discarded") != 1 {
		t.Errorf("effects %q; want the owner's state", b.effects(t, "a"))
	}
	b.set(func() {
		if diff := cmp.Diff([]string{"a"}, b.committed); diff != "" {
			t.Errorf("waiting readers were told of others (-want +got):\n%s", diff)
		}
	})
}

// Erase does the same, and keeps nothing of the message. An entry without the aggregate would keep it for ever.
func TestEraseKeepsNoMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"], b.acknowledged = 1, 0 })
	h := b.collect(t)
	if err := h.Erase(t.Context(), order, h.Letters[0]); err != nil {
		t.Fatal(err)
	}
	entry := `SELECT count(*) FROM operator_actions WHERE action = 'erase' AND aggregate_type = 'video' AND aggregate_id = 'a' AND record IS NULL`
	if b.effects(t, "a") != "r" || b.count(t, withStatus, "discarded") != 1 || b.count(t, entry) != 1 || b.acknowledged != 1 {
		t.Errorf("effects %q; want the owner's state, a settled letter, and an entry without the message", b.effects(t, "a"))
	}
}

// While another session holds the row, an erasure leaves the letter with its message.
func TestAnErasureOfALockedLetter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"], b.acknowledged = 1, 0 })
	config := b.db.Config()
	config.ConnConfig.RuntimeParams["lock_timeout"] = "100"
	impatient, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(impatient.Close)
	b.queue = New(impatient, b.client, b.handler(), subscription)
	h := b.collect(t)
	err = pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `SELECT FROM inbox FOR UPDATE`); err != nil {
			return err
		}
		if err := h.Erase(t.Context(), order, h.Letters[0]); !errors.Is(err, txn.ErrLocked) {
			t.Errorf("of a locked row: %v", err)
		}
		return nil
	})
	if err != nil || b.acknowledged != 0 || b.count(t, withStatus, "dead") != 1 {
		t.Errorf("%d messages are acknowledged, want none: %v", b.acknowledged, err)
	}
	if err := h.Erase(t.Context(), order, h.Letters[0]); err != nil || b.acknowledged != 1 || b.count(t, withStatus, "discarded") != 1 {
		t.Errorf("afterwards: %v, %d messages are acknowledged", err, b.acknowledged)
	}
}

// If an erasure ends before its message is acknowledged, the message comes back after ten minutes. Until then only the
// dead row tells the next erasure of it.
func TestAnErasureThatEndsBeforeItsAck(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"], b.failing[acknowledge] = 1, true })
	ended := b.collect(t)
	if err := ended.Erase(t.Context(), order, ended.Letters[0]); err == nil {
		t.Error("there is no error")
	}
	b.set(func() { b.failing[acknowledge], b.acknowledged = false, 0 })
	if next := b.collect(t); len(next.Letters) != 1 || next.Letters[0].Status != "dead" || next.Letters[0].Messages != 0 {
		t.Errorf("while the message is leased: %+v, want the dead letter", next.Letters)
	}
	b.release(t, ended)
	next := b.collect(t)
	if err := next.Erase(t.Context(), order, next.Letters[0]); err != nil {
		t.Error(err)
	}
	if b.count(t, withStatus, "discarded") != 1 || b.count(t, withAction, "erase") != 1 || b.acknowledged != 1 {
		t.Errorf("%d messages are acknowledged; want one, a settled letter, and one entry", b.acknowledged)
	}
}

// An aggregate that the owner does not know, or has lost, has no state: its
// event is discarded nonetheless.
func TestDiscardOfAnUnknownAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("unknown", 1), event("lost", 1))
	h := b.collect(t)
	for i, says := range []error{eventing.Permanent(errors.New("unknown")), fmt.Errorf("a: %w", inbox.ErrLost)} {
		b.queue.handler = repairing{b.handler(), says}
		if err := h.Discard(t.Context(), order, h.Letters[i]); err != nil {
			t.Error(err)
		}
	}
	if n := b.count(t, withStatus, "discarded"); n != 2 {
		t.Errorf("%d are discarded", n)
	}
}

// repairing is a handler with an owner that answers err.
type repairing struct {
	inbox.Handler

	err error
}

func (r repairing) Repair(context.Context, eventing.Event) error { return r.err }

// An event that says it occurred in a year, of a version that the owner does not have. No answer of the owner comes after
// that time, but one comes after the event was sent: the owner does not have the event.
func TestDiscardOfAnEventFromTheFuture(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := event("a", 5)
	e.OccurredAt = e.OccurredAt.AddDate(1, 0, 0)
	b.deadLetter(t, e)
	h := b.collect(t)
	discard := func(answer time.Time) error {
		b.queue.handler = owned{b.handler(), inbox.Position{Epoch: e.Epoch, Version: 1, At: time.Now().Add(-time.Hour)}, answer}
		return h.Discard(t.Context(), order, h.Letters[0])
	}
	if err := discard(time.Now()); !errors.Is(err, inbox.ErrBehind) {
		t.Errorf("with an answer that may be from before the event: %v", err)
	}
	if err := discard(time.Now().Add(time.Minute)); err != nil {
		t.Error(err)
	}
}

// owned is a handler with an owner that has the aggregate at a position, as of a time.
type owned struct {
	inbox.Handler

	at   inbox.Position
	asOf time.Time
}

func (o owned) Repair(_ context.Context, e eventing.Event) error { return inbox.Has(o.at, e, o.asOf) }

// A redriven event that its owner has lost ends as done, and changes nothing.
func TestRedriveOfALostAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 5))
	h := b.collect(t)
	b.queue.handler = repairing{b.handler(), inbox.ErrLost}
	if r, err := h.Redrive(t.Context(), order, h.Letters[0]); r != Lost || err != nil {
		t.Errorf("%v, %v", r, err)
	}
	if b.effects(t, "a") != "" || b.count(t, withStatus, "done") != 1 || b.count(t, withAction, "redrive") != 1 {
		t.Errorf("effects %q", b.effects(t, "a"))
	}
}

// diverged is a handler with a row of another history than the event's, until its repair.
type diverged struct {
	handler

	repaired *bool
}

func (d diverged) Apply(ctx context.Context, tx pgx.Tx, changes []inbox.Change) ([]inbox.Outcome, error) {
	if *d.repaired {
		return d.handler.Apply(ctx, tx, changes)
	}
	return []inbox.Outcome{inbox.Diverged}, nil
}

func (d diverged) Repair(ctx context.Context, e eventing.Event) error {
	*d.repaired = true
	return d.handler.Repair(ctx, e)
}

// The redrive of an event whose row has another history takes the owner's state.
func TestRedriveOfADivergedAggregate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.deadLetter(t, event("a", 1))
	b.set(func() { b.owner["a"] = 1 })
	h := b.collect(t)
	b.queue.handler = diverged{handler{b}, new(bool)}
	if r, err := h.Redrive(t.Context(), order, h.Letters[0]); r != Repaired || err != nil || b.effects(t, "a") != "r" {
		t.Errorf("%v, %v; effects %q", r, err, b.effects(t, "a"))
	}
}

// Of two events with one id each is its own dead letter. The second one has no
// row, takes no row of the other, and can be discarded.
func TestDeadLettersOfOneEventID(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"dead", "done", "held", "discarded"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			first := event("a", 1)
			second := first
			second.AggregateID = "z"
			b.deadLetter(t, first)
			if status != "dead" {
				pgtest.Exec(t, b.db, `UPDATE inbox SET status = $1`, status)
			}
			b.set(func() { b.owner = map[string]int64{"a": 1, "z": 1} })
			b.send(t, subscription+".dlq", second.Message())
			h := b.collect(t)
			var got []string
			for _, l := range h.Letters {
				got = append(got, fmt.Sprint(l.AggregateID, " ", l.Status, " ", l.Messages))
			}
			if diff := cmp.Diff([]string{"a " + status + " 1", "z none 1"}, got); diff != "" {
				t.Fatalf("letters (-want +got):\n%s", diff)
			}
			mine := `SELECT count(*) FROM inbox WHERE event_id = $1 AND aggregate_id = 'a' AND status = $2`
			if r, err := h.Redrive(t.Context(), order, h.Letters[1]); !errors.Is(err, ErrIDTaken) {
				t.Errorf("redrive of the second one: %v, %v", r, err)
			}
			if err := h.Discard(t.Context(), order, h.Letters[1]); err != nil {
				t.Error(err)
			}
			if b.count(t, mine, first.ID, status) != 1 || b.effects(t, "z") != "r" {
				t.Errorf("the first one's row is no longer %s, or the second one's aggregate is %q", status, b.effects(t, "z"))
			}
			want := map[string]Result{"dead": Applied, "done": Done, "held": Applied, "discarded": Applied}[status]
			if r, err := h.Redrive(t.Context(), order, h.Letters[0]); r != want || err != nil {
				t.Errorf("redrive of the first one: %v, %v", r, err)
			}
		})
	}
}
