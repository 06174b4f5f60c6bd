package backoff_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.com/lockstep/pkg/eventing/backoff"
)

// A call that fails is tried again, with longer pauses, until it succeeds or the
// caller's time is over.
func ExamplePolicy_Attempts() {
	retry := backoff.Policy{Base: time.Millisecond, Cap: 10 * time.Millisecond}
	calls := 0
	call := func() error {
		calls++
		if calls < 3 {
			return errors.New("unavailable")
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	for range retry.Attempts(ctx) {
		if err = call(); err == nil {
			break
		}
	}
	fmt.Println(calls, "calls,", err)
	// Output: 3 calls, <nil>
}

// A wait that another goroutine can end: an idle worker sleeps for a minute, unless there
// is work.
func ExampleSleep() {
	work := make(chan struct{}, 1)
	work <- struct{}{}
	alive := backoff.Sleep(context.Background(), time.Minute, work)
	fmt.Println("alive:", alive)

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	fmt.Println("alive:", backoff.Sleep(ended, time.Minute, nil))
	// Output:
	// alive: true
	// alive: false
}
