// Package backoff makes the pauses between the attempts of an action that is repeated after a
// failure.
package backoff

import (
	"cmp"
	"context"
	"iter"
	"math/rand/v2"
	"time"
)

// Policy is capped exponential backoff with full jitter. Each delay is drawn evenly between zero
// and a ceiling, which doubles with each attempt. The jitter spreads out the retries of instances
// that failed together (Brooker, "Exponential Backoff And Jitter", 2015).
type Policy struct {
	// Base is the ceiling of the first delay.
	Base time.Duration
	// Cap is the highest ceiling.
	Cap time.Duration
}

// Delay returns the wait before the next try. attempt is the number of failures so far, from 1 on.
func (p Policy) Delay(attempt int) time.Duration {
	return time.Duration(rand.Int64N(int64(p.ceiling(attempt)) + 1))
}

func (p Policy) ceiling(attempt int) time.Duration {
	c := p.Base
	for range attempt - 1 {
		if c >= p.Cap/2 {
			return p.Cap
		}
		c *= 2
	}
	return min(c, p.Cap)
}

// minDelay is the least Base and Cap of a Policy that Within returns. Without it a loop could be without
// pauses.
const minDelay = time.Millisecond

// Within returns p completed and limited. own is the caller's default policy, and most is the
// longest pause that the caller accepts. A zero Base or Cap of p is taken from own. Both are then
// clamped to between a millisecond and most. If Cap is below Base, Cap alone bounds every delay.
func (p Policy) Within(own Policy, most time.Duration) Policy {
	base := min(max(cmp.Or(p.Base, own.Base), minDelay), most)
	return Policy{Base: base, Cap: min(max(cmp.Or(p.Cap, own.Cap), minDelay), most)}
}

// Attempts yields the number of each attempt, from 1 on, together with the pause that follows the
// attempt. There is no pause if the caller ends its loop. The sequence ends when ctx ends. The
// first attempt comes at once, even if ctx has ended, so that the caller has an error to return.
func (p Policy) Attempts(ctx context.Context) iter.Seq2[int, time.Duration] {
	return func(yield func(int, time.Duration) bool) {
		for attempt := 1; ; attempt++ {
			pause := p.Delay(attempt)
			if !yield(attempt, pause) || !Sleep(ctx, pause, nil) {
				return
			}
		}
	}
}

// Sleep waits for d, or less if ctx ends or wake receives. It reports whether ctx has not ended. A
// nil wake never receives.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
