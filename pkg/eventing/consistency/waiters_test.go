package consistency

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitIsWokenByNotify(t *testing.T) {
	t.Parallel()
	// In the bubble time stands still while anybody can run: a return at the
	// same instant was the wake-up's doing and not the poll's.
	synctest.Test(t, func(t *testing.T) {
		w := NewWaiters(1)
		var version atomic.Int64
		began := time.Now()
		done := make(chan bool)
		go func() {
			ok, err := w.Wait(t.Context(), "video/a", func(context.Context) (bool, error) { return version.Load() >= 2, nil })
			done <- ok && err == nil
		}()
		synctest.Wait()
		version.Store(2)
		w.Notify("video/b")
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("woken by another aggregate")
		default:
		}
		w.Notify("video/a")
		if !<-done || time.Since(began) != 0 {
			t.Errorf("not woken by its own aggregate: waited %v", time.Since(began))
		}
	})
}

func TestWaitPollsForWhatOthersApply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		ok, err := NewWaiters(1).Wait(t.Context(), "k", func(context.Context) (bool, error) { looks++; return looks == 4, nil })
		if !ok || err != nil {
			t.Errorf("Wait = %v, %v without a Notify", ok, err)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := NewWaiters(1)
		looks := 0
		ok, err := w.Wait(ctx, "k", func(context.Context) (bool, error) { looks++; return false, nil })
		if ok || err != nil {
			t.Errorf("Wait = %v, %v; want false without an error", ok, err)
		}
		if looks > 100 {
			t.Errorf("looked %d times in a second: a busy loop", looks)
		}
		if len(w.byKey) != 0 || w.count != 0 {
			t.Errorf("a waiter is left behind: %d keys, count %d", len(w.byKey), w.count)
		}
	})
}

func TestWaitReportsErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("database is gone")
	_, err := NewWaiters(1).Wait(t.Context(), "k", func(context.Context) (bool, error) { return false, cause })
	if !errors.Is(err, cause) {
		t.Errorf("error %v, want the one of the look", err)
	}
}

func TestWaitersAreBounded(t *testing.T) {
	t.Parallel()
	w := NewWaiters(2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	waiting, done := make(chan struct{}, 2), make(chan error, 2)
	for range 2 {
		first := true
		go func() {
			_, err := w.Wait(ctx, "k", func(context.Context) (bool, error) {
				if first {
					first = false
					waiting <- struct{}{}
				}
				return false, nil
			})
			done <- err
		}()
		<-waiting
	}
	never := func(context.Context) (bool, error) { return true, nil }
	if _, err := w.Wait(ctx, "other", never); !errors.Is(err, ErrTooManyWaiters) {
		t.Errorf("third waiter of two: %v, want ErrTooManyWaiters", err)
	}
	cancel()
	<-done
	<-done
	if _, err := w.Wait(t.Context(), "other", never); err != nil {
		t.Errorf("after the others left: %v", err)
	}
}
