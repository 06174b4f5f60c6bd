// Package backoff spaces out the attempts of whatever is tried again.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Policy is capped exponential backoff with full jitter: a delay drawn evenly
// from zero to a ceiling that doubles with each attempt. The jitter spreads out
// the instances that failed together (Brooker, "Exponential Backoff And Jitter",
// 2015).
type Policy struct {
	// Base is the ceiling of the first delay.
	Base time.Duration
	// Cap is the highest ceiling.
	Cap time.Duration
}

// Delay is the wait before the next try, after attempt failures (from 1).
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

// Sleep waits for d, or less if ctx ends or wake receives. It reports whether
// ctx is still alive. A nil wake never receives.
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
