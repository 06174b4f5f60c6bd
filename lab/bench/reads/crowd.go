package reads

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/pkg/eventing/backoff"
	"example.com/lockstep/pkg/eventing/consistency"
)

func crowds() measure.Series {
	return measure.Series{
		Title: "fresh reads: others beside 10,000 who wait",
		Measurements: []measure.Measurement{{Figures: []measure.Figure{
			{Name: "read.alone_ms", Unit: "ms", Note: "without a token, in the process, one at a time"},
			{Name: "read.alone_p99_ms", Unit: "ms"},
			{Name: "read.crowded_ms", Unit: "ms", Note: "the same while 10,000 wait, each for another video"},
			{Name: "read.crowded_p99_ms", Unit: "ms"},
		}, Run: withDesk(crowded)}},
		Derived: []measure.Derived{measure.Ratio("read.crowd_cost", "read.crowded_ms", "read.alone_ms", "")},
	}
}

// crowd is the largest number of waiting readers at one instance.
const crowd = 10_000

// crowded reads without a token: first alone, then while a crowd waits.
func crowded(ctx context.Context, d *desk, v volume) (measure.Reading, error) {
	limit := v.crowd
	if _, err := d.readsFor(ctx, limit/2); err != nil { // connections prepare their statements; warm-up
		return measure.Reading{}, err
	}
	alone, err := d.readsFor(ctx, limit)
	if err != nil {
		return measure.Reading{}, err
	}
	waiting, release := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer release()
	for range crowd {
		p := position(uuid.Must(uuid.NewV7()), 1)
		readers.Go(func() {
			// A probe may have taken the place for a moment.
			for errors.Is(d.waitFor(waiting, p), consistency.ErrTooManyWaiters) && backoff.Sleep(waiting, time.Millisecond, nil) {
			}
		})
	}
	for full := false; !full; {
		probe, stop := context.WithTimeout(ctx, time.Microsecond)
		full = errors.Is(d.waitFor(probe, position(uuid.Must(uuid.NewV7()), 1)), consistency.ErrTooManyWaiters)
		stop()
		if !backoff.Sleep(ctx, 10*time.Millisecond, nil) {
			return measure.Reading{}, ctx.Err()
		}
	}
	beside, err := d.readsFor(ctx, limit)
	note := fmt.Sprintf("%d and %d reads a run", len(alone), len(beside))
	return measure.Reading{Values: append(measure.Percentiles(alone, 50, 99), measure.Percentiles(beside, 50, 99)...), Note: note}, err
}

func (d *desk) waitFor(ctx context.Context, p consistency.Position) error {
	_, err := d.waiters.Wait(ctx, p)
	return err
}

func (d *desk) readsFor(ctx context.Context, limit time.Duration) (took []time.Duration, err error) {
	for start := time.Now(); time.Since(start) < limit; {
		began := time.Now()
		if _, err := d.service.Get(ctx, d.videos[len(took)%len(d.videos)].id, consistency.Requirement{}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
