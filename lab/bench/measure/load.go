package measure

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"
)

// Paced calls do n times at random moments, like users. There are rate calls per second on average.
// Paced returns the duration of each call.
func Paced(ctx context.Context, rate float64, n int, do func(context.Context, int) error) ([]time.Duration, error) {
	calls, ctx := errgroup.WithContext(ctx)
	took := make([]time.Duration, n)
	random := rand.New(rand.NewPCG(1, 2))
	next := time.Now()
	for i := range n {
		next = next.Add(time.Duration(random.ExpFloat64() * float64(time.Second) / rate))
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return nil, errors.Join(calls.Wait(), ctx.Err())
		}
		calls.Go(func() error {
			start := time.Now()
			err := do(ctx, i)
			took[i] = time.Since(start)
			return err
		})
	}
	return took, calls.Wait()
}

// Offered calls do n times at fixed moments, rate times per second. It makes a call even if the
// earlier calls have not ended. It returns the time from each call's moment to the end of the call,
// so a call that starts late counts as slow. Offered returns when all calls have ended.
func Offered(ctx context.Context, rate float64, n int, do func(context.Context, int) error) ([]time.Duration, error) {
	calls, ctx := errgroup.WithContext(ctx)
	took := make([]time.Duration, n)
	start := time.Now()
	for i := range n {
		due := start.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil, errors.Join(calls.Wait(), ctx.Err())
		}
		calls.Go(func() error {
			err := do(ctx, i)
			took[i] = time.Since(due)
			return err
		})
	}
	return took, calls.Wait()
}

// Flood runs the given number of workers until limit is over. Each worker calls do with the
// worker's number, one call after the other.
func Flood(ctx context.Context, workers int, limit time.Duration, do func(context.Context, int) error) error {
	working, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for w := range workers {
		working.Go(func() error {
			for time.Since(start) < limit {
				if err := do(ctx, w); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return working.Wait()
}
