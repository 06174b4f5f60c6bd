package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"

	"example.com/lockstep/internal/pgtest"
	"example.com/lockstep/localpubsub"
	"example.com/lockstep/pkg/eventing"
)

// Callbacks wait when the budget is used up, whether a stream or a test brings the
// messages.
func TestCallbacksWaitForRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	h := b.handler(decode)
	const limit, events = 1 << 20, 60
	c := NewConsumer(b.db, b.client, subscription, h, slog.New(slog.DiscardHandler), func() {}, Options{Bytes: limit})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.RunFrom(ctx, func(ctx context.Context, deliver func(context.Context, *pubsub.Message)) error {
			var callbacks sync.WaitGroup
			for i := range events {
				e := event(fmt.Sprint("a", i), 2) // a gap, and the owner is unavailable
				callbacks.Go(func() {
					deliver(ctx, &pubsub.Message{ID: fmt.Sprint(i), Data: make([]byte, 32<<10), Attributes: e.Message().Attributes})
				})
			}
			callbacks.Wait()
			<-ctx.Done()
			return nil
		})
	}()
	waiting := func() int {
		c.budget.mu.Lock()
		defer c.budget.mu.Unlock()
		return len(c.budget.queue)
	}
	pgtest.Until(t, "each message is in hand or waits", func() bool { return int(c.budget.inHand().messages)+waiting() == events })
	if n := c.budget.inHand(); n.bytes > limit || waiting() == 0 {
		t.Errorf("%v in hand, %d wait", n, waiting())
	}
	for i := range events {
		b.setOwner(fmt.Sprint("a", i), 2)
	}
	b.eventually(t, events, withDone)
	stop()
	if err := <-ended; err != nil || c.budget.inHand() != (load{}) {
		t.Errorf("%v in hand at the end, %v", c.budget.inHand(), err)
	}
}

// Every message is acked or nacked, and once: events with gaps, poison and failures come
// repeatedly, while dead-lettering hangs, streams break, and consumers end in the middle of
// it.
func TestEveryMessageIsSettledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100)
	w.stop() // its consumer; this test has its own
	const events = 300
	rnd := rand.New(rand.NewPCG(1, 2))
	var all []eventing.Event
	for i := range events {
		v := int64(1 + rnd.IntN(2)) // the second is a gap
		e := event(fmt.Sprint("a", i), v)
		w.setOwner(e.AggregateID, 2)
		switch rnd.IntN(12) {
		case 0:
			e.Payload = []byte{0xff}
		case 1:
			e.AggregateID = fmt.Sprint("never", i)
		}
		all = append(all, e)
		for rnd.IntN(2) == 0 {
			all = append(all, e)
		}
	}
	w.setSpoil(func(e eventing.Event) error {
		if e.AggregateID[0] == 'n' {
			return eventing.Permanent(errors.New("never"))
		}
		return nil
	})
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	publish := func(part []eventing.Event) {
		for _, e := range part {
			w.publishRaw(t, e.Message())
		}
	}
	const lives = 4
	for life := range lives {
		part := all[life*len(all)/lives : (life+1)*len(all)/lives]
		publish(part[:len(part)/2])
		c, heard, stop := w.live(t)
		w.clock.Advance(2 * time.Minute) // the leases of the one before have ended
		if err := w.server.SetFaults(uint64(life+1),
			localpubsub.Fault{Kind: localpubsub.AckLost, Probability: 0.1},
			localpubsub.Fault{Kind: localpubsub.Reset, Probability: 0.2, Times: 1},
			localpubsub.Fault{Kind: localpubsub.Resend, Probability: 0.1},
			localpubsub.Fault{Kind: localpubsub.AnswerLost, Method: "Publish", Probability: 0.3},
			localpubsub.Fault{Kind: localpubsub.Throttle, Method: "Publish", Probability: 0.3},
		); err != nil {
			t.Fatal(err)
		}
		pgtest.Until(t, "messages come", func() bool { return c.budget.inHand().messages > 0 })
		if err := w.server.SetFaults(0); life == lives-1 && err != nil {
			t.Fatal(err)
		}
		for _, e := range part[len(part)/2:] {
			_, _ = w.client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{Topic: topic, Messages: []*pubsubpb.PubsubMessage{e.Message()}})
		}
		if life == lives-1 { // the last one finishes
			publish(all)
			w.eventually(t, events, `SELECT count(*) FROM inbox WHERE status IN ('done', 'dead')`)
			pgtest.Until(t, "nothing is in hand", func() bool { return c.budget.inHand() == load{} })
		}
		stop()
		if left := c.budget.inHand(); left != (load{}) {
			t.Errorf("life %d: %v in hand after its end", life, left)
		}
		if heard.n.Load() != 0 {
			t.Errorf("life %d: its stream did not close: a message was never settled", life)
		}
	}
}

// A message that joins a finished delivery is acked, also when the process ends then.
func TestCopyOfASettledMessageIsAcked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := b.consumer(t)
	e := event("a", 1)
	first, second := delivered(e), delivered(e)
	for _, d := range []*delivery{first, second} {
		c.budget.acquire(t.Context(), loadOf(d.message()))
	}
	c.ack(t.Context(), first)
	joined := mergeDuplicates([]*delivery{first, second})
	c.shutDown(t.Context(), joined)
	if len(joined) != 1 || c.budget.inHand() != (load{}) {
		t.Errorf("%d deliveries, %v in hand", len(joined), c.budget.inHand())
	}
}

// live runs another consumer until stop, with room for some fifty messages.
func (w *world) live(t *testing.T) (c *Consumer, heard *complaints, stop func()) {
	t.Helper()
	heard = &complaints{of: "stream did not close in time"}
	h := w.handler(decodeOrSpoil)
	c = NewConsumer(w.db, w.client, subscription, h, slog.New(heard), func() {}, Options{Bytes: 64 << 10})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return c, heard, stop
}
