package consistency

import (
	"context"
	"errors"
	"sync"
	"time"

	"example.com/lockstep/pkg/eventing"
)

// ErrTooManyWaiters means that the limit of waiting readers is reached; the
// caller should answer at once that it is busy.
var ErrTooManyWaiters = errors.New("too many readers are waiting")

// poll is the pause between looks while waiting. Notify is what wakes a reader
// as a rule; this finds what another instance has applied.
var poll = eventing.Backoff{Base: 50 * time.Millisecond, Cap: 400 * time.Millisecond}

// Waiters are the readers in this process that wait for a copy to catch up.
type Waiters struct {
	max int

	mu    sync.Mutex
	count int
	byKey map[string]map[chan struct{}]struct{}
}

// NewWaiters returns a set that holds at most limit readers at once.
func NewWaiters(limit int) *Waiters {
	return &Waiters{max: limit, byKey: map[string]map[chan struct{}]struct{}{}}
}

// Wait returns true as soon as reached does, and false when ctx ends first. It
// asks reached now, after each Notify of key, and now and then in between. An
// error of reached ends the wait, except one that is only ctx's end.
func (w *Waiters) Wait(ctx context.Context, key string, reached func(context.Context) (bool, error)) (bool, error) {
	// Listen before the first look: a change in between is then not missed.
	wake, err := w.add(key)
	if err != nil {
		return false, err
	}
	defer w.remove(key, wake)
	for attempt := 1; ; attempt++ {
		ok, err := reached(ctx)
		switch {
		case ok:
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case err != nil:
			return false, err
		}
		// Never less than half of the ceiling: jitter must not become a busy loop.
		pause := poll.Delay(attempt)/2 + poll.Base/2
		if !eventing.Sleep(ctx, pause, wake) {
			return false, nil
		}
	}
}

// Notify wakes the readers that wait for the aggregates with these keys. Call
// it after the commit that brought them forward. It never blocks.
func (w *Waiters) Notify(keys ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range keys {
		for wake := range w.byKey[k] {
			select {
			case wake <- struct{}{}:
			default: // it is about to look anyway
			}
		}
	}
}

func (w *Waiters) add(key string) (chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count >= w.max {
		return nil, ErrTooManyWaiters
	}
	w.count++
	if w.byKey[key] == nil {
		w.byKey[key] = map[chan struct{}]struct{}{}
	}
	wake := make(chan struct{}, 1)
	w.byKey[key][wake] = struct{}{}
	return wake, nil
}

func (w *Waiters) remove(key string, wake chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
	delete(w.byKey[key], wake)
	if len(w.byKey[key]) == 0 {
		delete(w.byKey, key)
	}
}
