package inbox

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/pubsub/v2"

	"example.com/lockstep/internal/pgtest"
)

func TestBudgetIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	b := &budget{limit: load{messages: 3, bytes: 100}}
	if !b.acquire(t.Context(), load{1, 500}) {
		t.Fatal("what is larger than all of it does not pass alone")
	}
	waiting := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.queue)
	}
	admitted := make(chan int64, 3)
	given, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, bytes := range []int64{90, 20, 10} {
		ctx := t.Context()
		if i == 0 {
			ctx = given
		}
		all.Go(func() {
			if b.acquire(ctx, load{1, bytes}) {
				admitted <- bytes
			}
		})
		pgtest.Until(t, "it waits", func() bool { return waiting() == i+1 })
	}
	if n := b.inHand(); n != (load{1, 500}) {
		t.Errorf("%v in hand", n)
	}
	b.release(load{1, 500})
	if got := <-admitted; got != 90 {
		t.Errorf("%d went first", got)
	}
	if n := waiting(); n != 2 { // the third would fit, and does not overtake
		t.Errorf("%d wait", n)
	}
	giveUp() // too late: it has its part
	b.release(load{1, 90})
	all.Wait()
	if b.inHand() != (load{2, 30}) {
		t.Errorf("%v in hand", b.inHand())
	}
}

// A caller that stops waiting leaves nothing behind, and lets those behind it pass.
func TestBudgetAfterManyCancelledWaits(t *testing.T) {
	t.Parallel()
	b := &budget{limit: load{messages: 5, bytes: 1000}}
	var inside, most atomic.Int64
	var all sync.WaitGroup
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		all.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(3) == 0 {
					go cancel()
				}
				l := load{1, 1 + rnd.Int64N(600)}
				if b.acquire(ctx, l) {
					most.Store(max(most.Load(), inside.Add(l.bytes)))
					inside.Add(-l.bytes)
					b.release(l)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if b.inHand() != (load{}) || len(b.queue) != 0 || most.Load() > 1000 {
		t.Errorf("%v in hand, %d in line, up to %d bytes at once", b.inHand(), len(b.queue), most.Load())
	}
}

func TestBudgetReportsItsRoom(t *testing.T) {
	t.Parallel()
	b := &budget{limit: load{messages: 4, bytes: 400}}
	b.acquire(t.Context(), load{3, 100})
	if err := b.wait(t.Context(), load{1, 300}); err != nil || b.room() != (load{1, 300}) {
		t.Errorf("%v, %v", b.room(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.wait(ctx, load{4, 400}) }()
	b.release(load{1, 50})
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("returned %v while messages are in hand", err)
	}
	go func() { done <- b.wait(t.Context(), load{4, 400}) }()
	b.release(load{2, 50})
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestLoadCountsWhatAMessageTakes(t *testing.T) {
	t.Parallel()
	m := &pubsub.Message{Data: make([]byte, 100), OrderingKey: "key", Attributes: map[string]string{"a": "bc"}}
	if got := loadOf(m); got != (load{1, perMessage + 206}) {
		t.Errorf("%v", got)
	}
}
