package inbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/google/uuid"

	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/backoff"
)

// quickly is a backoff for tests.
var quickly = backoff.Policy{Base: time.Millisecond, Cap: 2 * time.Millisecond}

// consumeWith runs a consumer with options until stop is called.
func (b *bench) consumeWith(t *testing.T, o Options) (stop func()) {
	t.Helper()
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(slog.DiscardHandler), func() {}, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("consumer: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// observed waits for the next dead letter that a hook has seen.
func observed(t *testing.T, from <-chan DeadLetter) (d DeadLetter) {
	t.Helper()
	select {
	case d = <-from:
	case <-time.After(patience):
		t.Fatal("no dead letter is observed")
	}
	return d
}

// Each dead letter is observed after its row says that it is dead, also that of a message
// that is no event.
func TestDeadLettersAreObserved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cause := errors.New("not today")
	b.setSpoil(func(e eventing.Event) error {
		if e.AggregateID == "bad" {
			return cause
		}
		return nil
	})
	seen := make(chan DeadLetter, 10)
	b.consumeWith(t, Options{MaxAttempts: 2, RetryBackoff: quickly, OnDeadLetter: func(_ context.Context, d DeadLetter) {
		if d.Event.ID != uuid.Nil && b.count(t, `SELECT count(*) FROM inbox WHERE status = 'dead' AND attempts = 2`) != 1 {
			t.Error("observed before the row says so, or not after two attempts")
		}
		seen <- d
	}})
	bad := event("bad", 1)
	b.publish(t, bad, event("good", 1))
	d := observed(t, seen)
	if d.Event.ID != bad.ID || d.Attempts != 2 || d.MessageID == "" || d.Event.Payload != nil || !errors.Is(d.Reason, cause) {
		t.Errorf("observed %+v", d)
	}
	b.publishRaw(t, &pubsubpb.PubsubMessage{Data: []byte("hello")})
	if d = observed(t, seen); d.Event.ID != uuid.Nil || d.MessageID == "" || d.Reason == nil {
		t.Errorf("observed %+v of a message that is no event", d)
	}
	b.eventually(t, 1, version, "good")
}

// A hook that never returns by itself holds up neither events nor the end of the consumer.
func TestAHookThatBlocksDelaysNoEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	blocked := make(chan DeadLetter, 1)
	stop := b.consumeWith(t, Options{OnDeadLetter: func(ctx context.Context, d DeadLetter) {
		blocked <- d
		<-ctx.Done()
	}})
	b.publishRaw(t, &pubsubpb.PubsubMessage{Data: []byte("hello")})
	observed(t, blocked)
	b.publish(t, event("good", 1))
	b.eventually(t, 1, version, "good")
	stop()
}

func TestOptionsHaveBounds(t *testing.T) {
	t.Parallel()
	for given, want := range map[int]int{-1: 5, 0: 5, 1: 1, 100: 100, 1000: 100} {
		if got := (Options{MaxAttempts: given}).within().MaxAttempts; got != want {
			t.Errorf("%d attempts count as %d, want %d", given, got, want)
		}
	}
	day := backoff.Policy{Base: 24 * time.Hour, Cap: 24 * time.Hour}
	o := Options{MaxAttempts: 1e6, RetryBackoff: day, RepairBackoff: day, OutageBackoff: day}.within()
	if all := time.Duration(o.MaxAttempts) * max(o.RetryBackoff.Base, o.RetryBackoff.Cap); all > maxExtension/2 {
		t.Errorf("an event fails for %s, and its lease is kept for %s", all, maxExtension)
	}
	if o.RepairBackoff.Cap != mostPause || o.OutageBackoff.Cap != mostOutagePause || mostOutagePause+batchTimeout > time.Minute {
		t.Errorf("%+v and %+v are the pauses between repairs and in outages", o.RepairBackoff, o.OutageBackoff)
	}
	if o = (Options{}).within(); o.RetryBackoff != failRetry || o.RepairBackoff != repairRetry || o.OutageBackoff != outageRetry {
		t.Errorf("%+v in place of zero values", o)
	}
}

func TestPausesFollowTheOptions(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	heard := &pauses{}
	c := NewConsumer(b.db, b.client, subscription, b.handler(decode), slog.New(slog.DiscardHandler), func() {},
		Options{MaxAttempts: 10, RetryBackoff: quickly, RepairBackoff: quickly})
	c.log = slog.New(heard)
	b.setSpoil(func(e eventing.Event) error {
		if e.AggregateID == "bad" {
			return errors.New("not today")
		}
		return nil
	})
	c.finish(t, delivered(event("bad", 1)))
	repairs := 0
	c.functions().repair = func(ctx context.Context, e eventing.Event) error {
		repairs++
		if repairs == 10 {
			b.setOwner(e.AggregateID, e.Version)
		}
		return b.repair(ctx, e)
	}
	c.finish(t, delivered(event("gap", 2)))
	if len(heard.all) != 9+9 || slices.Max(heard.all) > quickly.Cap {
		t.Errorf("pauses %v, want 18 of up to %s", heard.all, quickly.Cap)
	}
}
