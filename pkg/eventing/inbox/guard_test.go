package inbox

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// An outcome that does not exist fails its event, like a wrong number of outcomes. Nothing is committed.
func TestAnUnknownOutcomeFailsItsEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	c.functions().apply = each(func(ctx context.Context, tx pgx.Tx, change Change) (Outcome, error) {
		o, err := b.apply(ctx, tx, change)
		switch change.Event.AggregateID {
		case "high":
			o = outcomeCount
		case "negative":
			o = -1
		case "forgotten":
			o = 0
		}
		return o, err
	})
	c.finish(t, delivered(event("a", 1)), delivered(event("high", 1)), delivered(event("negative", 1)), delivered(event("forgotten", 1)))
	if n := b.count(t, withDone); n != 1 {
		t.Errorf("%d events are done, want that of the known outcome", n)
	}
	dead := b.deadLettered("")
	if len(dead) != 3 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "unknown outcome") {
		t.Errorf("dead letters %v, want three with the reason", dead)
	}
	if n := b.count(t, effects, "high") + b.count(t, effects, "negative") + b.count(t, effects, "forgotten"); n != 0 {
		t.Errorf("%d effects of unknown outcomes are committed", n)
	}
}

// The commit stands whatever Committed does, so the event is acknowledged.
func TestAPanicAfterTheCommitEndsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	heard := &strings.Builder{}
	c.log = slog.New(slog.NewTextHandler(heard, nil))
	c.functions().committed = func(...string) { panic("boom") }
	c.finish(t, delivered(event("a", 1)), delivered(event("b", 1)))
	if n := b.count(t, withDone); n != 2 {
		t.Errorf("%d events are done, want 2", n)
	}
	if !strings.Contains(heard.String(), "panicked after a commit") || !strings.Contains(heard.String(), "boom") {
		t.Errorf("the log says %q", heard)
	}
}

// With the name that the client takes, too, dead letters would go to a topic that does not exist.
func TestASubscriptionIsNamedByItsID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := NewConsumer(b.db, b.client, "projects/demo/subscriptions/"+subscription, b.handler(decode), slog.New(slog.DiscardHandler), func() {}, Options{})
	ended, end := context.WithCancel(t.Context())
	end() // so that a Run that takes the name returns
	if err := c.Run(ended); err == nil || !strings.Contains(err.Error(), "want its id") {
		t.Errorf("Run: %v", err)
	}
}

func TestNegativeOptionsAreTheDefaults(t *testing.T) {
	t.Parallel()
	got, want := Options{Bytes: -1, Retention: -time.Hour}.within(), Options{}.within()
	if got.Bytes != want.Bytes || got.Retention != want.Retention {
		t.Errorf("%d bytes and %s, want %d and %s", got.Bytes, got.Retention, want.Bytes, want.Retention)
	}
}
