package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/jackc/pgx/v5"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/pkg/eventing"
)

func TestEachEffectOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setOwner("a", 10)
	b.consume(t)
	b.consume(t)
	for v := range int64(10) {
		e := event("a", v+1)
		b.publish(t, e, e, e)
		b.eventually(t, int(v)+1, version, "a")
	}
	b.eventually(t, 10, withDone)
	if n := b.count(t, effects, "a"); n != 10 {
		t.Errorf("%d effects of 10 events", n)
	}
}

func TestRedeliveryAfterCommitHasNoEffect(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	e := event("a", 1)
	calls := 0
	b.setSpoil(func(eventing.Event) error { calls++; return nil })
	for range 3 {
		c.finish(t, delivered(e))
	}
	if n := b.count(t, effects, "a"); n != 1 || calls != 1 {
		t.Errorf("%d effects in %d calls of the handler, want 1 in 1", n, calls)
	}
	// Even without its inbox row, as after a purge, the version stops it.
	pgtest.Exec(t, b.pg.Pool(t, b.pg.Admin), `DELETE FROM app.inbox`)
	c.finish(t, delivered(e))
	if n := b.count(t, effects, "a"); n != 1 {
		t.Errorf("%d effects after a purge, want 1", n)
	}
}

func TestGapIsRepairedFromTheOwner(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.consume(t)
	b.publish(t, event("a", 1))
	b.eventually(t, 1, version, "a")
	b.publish(t, event("a", 3), event("a", 4), event("b", 1))
	// The owner is unavailable: the gap stays blocked, other aggregates go on, no event is skipped.
	b.eventually(t, 1, version, "b")
	// Whichever of the two came first has a row; the other waits behind it in memory.
	b.eventually(t, 1, `SELECT least(count(*), 1) FROM inbox WHERE status = 'held' AND aggregate_id = 'a'`)
	if n := b.count(t, version, "a"); n != 1 {
		t.Errorf("version %d across a gap, want 1", n)
	}
	b.setOwner("a", 3)
	b.eventually(t, 4, version, "a")
	b.eventually(t, 4, withDone)
	if n := b.count(t, `SELECT coalesce(sum(attempts), 0) FROM inbox`); n != 0 {
		t.Errorf("an absent owner spent %d attempts", n)
	}
}

func TestOutageOfTheDatabaseIsWaitedOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.setOwner("a", 40)
	// Every tenth event loses its connection in the middle of its transaction.
	broken := map[int64]bool{}
	b.setSpoil(func(e eventing.Event) error {
		if e.Version%10 == 0 && !broken[e.Version] {
			broken[e.Version] = true
			b.pg.Terminate(t)
		}
		return nil
	})
	b.consume(t)
	for v := int64(1); v <= 40; v++ {
		b.publish(t, event("a", v))
	}
	b.eventually(t, 40, version, "a")
	b.eventually(t, 40, withDone)
	b.eventually(t, 0, `SELECT coalesce(sum(attempts), 0) FROM inbox`)
	if dead := b.deadLettered(""); len(dead) != 0 {
		t.Errorf("%d dead letters from an outage", len(dead))
	}
}

// TestOppositeOrdersDoNotDeadlock feeds two consumers the same rows in opposite
// orders, many times. The database finds a deadlock long before a consumer's wait for a lock
// ends. So if such a wait ends, the other consumer is slow, on a busy machine.
func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.pg.Pool(t, b.pg.Admin).Exec(t.Context(),
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''20ms''', current_database()); END $$`)
	if err != nil {
		t.Fatal(err)
	}
	b.db.Reset()
	one, two := b.consumer(t), b.consumer(t)
	for round := range int64(30) {
		forth, back := make([]*delivery, 8), make([]*delivery, 8)
		for i := range forth {
			e := event(fmt.Sprint("a", i), round+1)
			forth[i] = delivered(e)
			back[len(back)-1-i] = delivered(e)
		}
		var both sync.WaitGroup
		for c, batch := range map[*Consumer][]*delivery{one: forth, two: back} {
			both.Go(func() {
				merged := mergeDuplicates(batch)
				_, err := c.tryBatch(t.Context(), merged)
				for err != nil && c.classify(t.Context(), nil, err, time.Now()) == locked {
					_, err = c.tryBatch(t.Context(), merged)
				}
				if err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		both.Wait()
	}
	if n := b.count(t, `SELECT count(*) FROM model WHERE version = 30 AND effects = 30`); n != 8 {
		t.Errorf("%d of 8 aggregates have each effect once", n)
	}
}

func TestShutdownReturnsItsMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.consumeWith(t, Options{Streams: b.streams})
	b.publish(t, event("a", 1), event("a", 3))
	b.eventually(t, 1, `SELECT count(*) FROM inbox WHERE status = 'held'`)
	stop()
	b.setOwner("a", 3)
	b.consumeWith(t, Options{Streams: b.streams})
	b.eventually(t, 3, version, "a")
	b.eventually(t, 2, withDone)
}

func TestMergeDuplicates(t *testing.T) {
	t.Parallel()
	a1, a2, b1 := event("a", 1), event("a", 2), event("b", 1)
	one := delivered
	got := mergeDuplicates([]*delivery{one(b1), one(a2), one(a1), one(a2)})
	if len(got) != 3 || got[0].id() != a1.ID || got[1].id() != a2.ID || got[2].id() != b1.ID {
		t.Fatal("order is not (aggregate, version)")
	}
	if len(got[1].messages) != 2 {
		t.Errorf("two deliveries of one event: %d messages to ack, want 2", len(got[1].messages))
	}
	invalid := func(id string) *delivery {
		return &delivery{invalid: errKeyMismatch, messages: []*pubsub.Message{{ID: id}}}
	}
	if got := mergeDuplicates([]*delivery{invalid("m"), invalid("n")}); len(got) != 2 || got[0].key() == got[1].key() {
		t.Errorf("two messages that are no events became %d, or one behind the other", len(got))
	}
}

// If the consumer ends while a failed batch is halved, the transaction in hand is the last:
// each further one would take its own two seconds.
func TestNoTransactionBeginsAfterTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	defer c.metrics.unregister()
	ctx, end := context.WithCancel(t.Context())
	var calls int
	c.functions().apply = func(context.Context, pgx.Tx, []Change) ([]Outcome, error) {
		calls++
		if calls == 2 { // the first half
			end()
		}
		return nil, errors.New("not this batch")
	}
	batch := []*delivery{delivered(event("a", 1)), delivered(event("b", 1)), delivered(event("c", 1)), delivered(event("d", 1))}
	if unfinished := c.process(ctx, batch); len(unfinished) != len(batch) || calls != 2 {
		t.Errorf("%d transactions, and %d of %d events are given back; want 2, and all", calls, len(unfinished), len(batch))
	}
}
