package inbox

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
)

// A message that fits waits all the same while an earlier one does not fit: small
// messages would otherwise keep a large one out for as long as they come.
func TestSmallMessageDoesNotOvertakeALargeOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: load{messages: 3, bytes: 100}}
		b.acquire(t.Context(), load{1, 60})
		admitted := make(chan int64, 2)
		for _, bytes := range []int64{50, 10} {
			go func() {
				b.acquire(t.Context(), load{1, bytes})
				admitted <- bytes
			}()
			synctest.Wait()
		}
		if n := b.inHand(); n != (load{1, 60}) {
			t.Errorf("%v in hand: the small one went first", n)
		}
		b.release(load{1, 60})
		synctest.Wait()
		if n := b.inHand(); n != (load{2, 60}) || len(admitted) != 2 {
			t.Errorf("%v in hand, %d admitted, with room for both", n, len(admitted))
		}
	})
}

// The number of messages is bounded however small they are.
func TestBudgetCountsMessages(t *testing.T) {
	t.Parallel()
	b := &budget{limit: load{messages: 2, bytes: 100}}
	b.acquire(t.Context(), load{1, 1})
	b.acquire(t.Context(), load{1, 1})
	ended, end := context.WithCancel(t.Context())
	end()
	if b.acquire(ended, load{1, 1}) || b.inHand() != (load{2, 2}) {
		t.Errorf("a third one is in hand: %v", b.inHand())
	}
}

// Several streams may wait for room in a budget: an ended one and its successor.
func TestEveryWaiterIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: load{messages: 4, bytes: 400}}
		b.acquire(t.Context(), load{3, 300})
		ctx, end := context.WithCancel(t.Context())
		defer end()
		done := make(chan error, 2)
		for range cap(done) {
			go func() { done <- b.wait(ctx, b.limit) }()
			synctest.Wait()
		}
		b.release(load{3, 300})
		synctest.Wait()
		if len(done) != cap(done) {
			t.Errorf("%d of %d have returned", len(done), cap(done))
		}
	})
}

// Those behind one that gives up need no further give: they pass if they fit.
func TestCancelledWaitLetsLaterOnesPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &budget{limit: load{messages: 3, bytes: 100}}
		b.acquire(t.Context(), load{1, 60})
		ctx, giveUp := context.WithCancel(t.Context())
		large, small := make(chan bool, 1), make(chan bool, 1)
		go func() { large <- b.acquire(ctx, load{1, 50}) }()
		synctest.Wait()
		behind, end := context.WithCancel(t.Context())
		defer end()
		go func() { small <- b.acquire(behind, load{1, 10}) }()
		synctest.Wait()
		giveUp()
		synctest.Wait()
		if <-large || len(small) != 1 || b.inHand() != (load{2, 70}) {
			t.Errorf("%v in hand after the large one gave up", b.inHand())
		}
	})
}

// A caller that is admitted at the moment of giving up has its part, and reports it: a part
// without an owner is never given back.
func TestAdmissionDuringCancellationIsReported(t *testing.T) {
	t.Parallel()
	one := load{1, 1}
	for range 1000 { // the moment is not hit each time
		b := &budget{limit: one}
		b.acquire(t.Context(), one)
		ctx, giveUp := context.WithCancel(t.Context())
		taken := make(chan bool, 1)
		go func() { taken <- b.acquire(ctx, one) }()
		for inLine := 0; inLine == 0; runtime.Gosched() {
			b.mu.Lock()
			inLine = len(b.queue)
			b.mu.Unlock()
		}
		b.mu.Lock()
		giveUp()
		runtime.Gosched()
		b.used = load{}
		b.admit()
		b.mu.Unlock()
		if had := <-taken; had != (b.inHand() == one) {
			t.Fatalf("has its part: %v, %v in hand", had, b.inHand())
		}
	}
}
