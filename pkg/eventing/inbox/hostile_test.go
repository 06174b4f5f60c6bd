package inbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/pkg/eventing"
)

// again is e as a redelivery brings it.
func (c *Consumer) again(e eventing.Event) *delivery {
	m, attempt := e.Message(), 2
	return c.handler.newDelivery(&pubsub.Message{ID: "m", Data: m.Data, Attributes: m.Attributes, DeliveryAttempt: &attempt})
}

// Data that no database can store must not hold up the events that it can store.
func TestTextThatCannotBeStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	refuses := func(text string) func(eventing.Event) error {
		return func(eventing.Event) error { return errors.New(text) }
	}
	for name, spoil := range map[string]func(eventing.Event) error{
		"nul": refuses("no \x00 here"), "not utf-8": refuses("no \xff here"), "long": refuses(strings.Repeat("ü", 5000)),
	} {
		e := event(name, 1)
		b.setSpoil(spoil)
		c.finish(t, c.again(e))
		if n := b.count(t, `SELECT count(*) FROM inbox WHERE event_id = $1 AND status = 'dead' AND attempts = $2`, e.ID, maxAttempts); n != 1 {
			t.Errorf("%s: not counted and buried", name)
		}
		if dead := b.deadLettered(e.ID.String()); len(dead) != 1 {
			t.Errorf("%s: %d dead letters, want one", name, len(dead))
		}
	}
	b.setSpoil(nil)
	spoiled := event("spoiled", 1)
	spoiled.Type = "Video\x00Updated"
	c.finish(t, c.again(spoiled), c.again(event("good", 1)))
	if n := b.count(t, effects, "good"); n != 1 {
		t.Error("the rest does not flow")
	}
	if dead := b.deadLettered(spoiled.ID.String()); len(dead) != 1 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "event_type") {
		t.Errorf("dead letters %v, want one that names the field", dead)
	}
}

// A producer that uses an event's id twice holds up no other event, and neither of the two
// disappears as the other's duplicate.
func TestAnEventIDThatIsUsedTwice(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	first, second, later := event("a", 1), event("z", 1), event("b", 1)
	second.ID, later.ID = first.ID, first.ID
	c.finish(t, c.again(first), c.again(second), c.again(event("good", 1)))
	c.finish(t, c.again(later), c.again(first))
	if n := b.count(t, `SELECT coalesce(sum(effects), 0) FROM model`); n != 2 {
		t.Errorf("%d effects, want those of the first and of the good one", n)
	}
	dead := b.deadLettered(first.ID.String())
	if len(dead) != 2 || !strings.Contains(dead[0].Attributes[AttrDeadLetterReason], "event_id") ||
		dead[0].Attributes[eventing.AttrAggregateID] != "z" || dead[1].Attributes[eventing.AttrAggregateID] != "b" {
		t.Errorf("dead letters %v, want the second and the later one", dead)
	}
	if n := b.count(t, `SELECT count(*) FROM inbox WHERE event_id = $1 AND status = 'done' AND aggregate_id = 'a'`, first.ID); n != 1 {
		t.Error("the first one's row is not what it was")
	}
}

// However many events have gathered behind a long gap, a transaction stays small.
func TestBlockedEventsAreAppliedInParts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	const n = 2*maxBatch + 1
	var largest atomic.Int64
	c.functions().apply = func(_ context.Context, _ pgx.Tx, changes []Change) ([]Outcome, error) {
		largest.Store(max(largest.Load(), int64(len(changes))))
		return slices.Repeat([]Outcome{Stale}, len(changes)), nil
	}
	for v := range n {
		c.block(t.Context(), delivered(event("a", int64(v+1))), failedEvent, func(context.Context) {})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() { c.work(ctx) })
	b.eventually(t, n, withDone)
	cancel()
	working.Wait()
	if largest.Load() != maxBatch {
		t.Errorf("up to %d events in a transaction, want %d", largest.Load(), maxBatch)
	}
}
