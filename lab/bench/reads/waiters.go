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

func waitingSeries() measure.Series {
	return measure.Series{
		Title: "fresh reads: others next to 10,000 waiting readers",
		Measurements: []measure.Measurement{{Figures: []measure.Figure{
			{Name: "read.alone_ms", Unit: "ms", Note: "without a token, in the process, one at a time"},
			{Name: "read.alone_p99_ms", Unit: "ms"},
			{Name: "read.crowded_ms", Unit: "ms", Note: "the same while 10,000 wait, each for another video"},
			{Name: "read.crowded_p99_ms", Unit: "ms"},
		}, Run: withHarness(nextToWaiters)}},
		Derived: []measure.Derived{measure.Ratio("read.crowd_cost", "read.crowded_ms", "read.alone_ms", "")},
	}
}

// mostWaiters is the largest number of waiting readers at one instance.
const mostWaiters = 10_000

// nextToWaiters measures reads without a token, first alone. Then it measures them next to as many
// waiting readers as an instance accepts.
func nextToWaiters(ctx context.Context, h *readHarness, v volume) (measure.Reading, error) {
	limit := v.limit
	if _, err := h.readsFor(ctx, limit/2); err != nil { // connections prepare their statements; warm-up
		return measure.Reading{}, err
	}
	alone, err := h.readsFor(ctx, limit)
	if err != nil {
		return measure.Reading{}, err
	}
	waiting, release := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer release()
	for range mostWaiters {
		p := position(uuid.Must(uuid.NewV7()), 1)
		readers.Go(func() {
			// The probe below may have taken the place of this reader for a moment.
			for errors.Is(h.waitFor(waiting, p), consistency.ErrTooManyWaiters) && backoff.Sleep(waiting, time.Millisecond, nil) {
			}
		})
	}
	for full := false; !full; {
		probe, stop := context.WithTimeout(ctx, time.Microsecond)
		full = errors.Is(h.waitFor(probe, position(uuid.Must(uuid.NewV7()), 1)), consistency.ErrTooManyWaiters)
		stop()
		if !backoff.Sleep(ctx, 10*time.Millisecond, nil) {
			return measure.Reading{}, ctx.Err()
		}
	}
	crowded, err := h.readsFor(ctx, limit)
	if err != nil {
		return measure.Reading{}, err
	}
	note := fmt.Sprintf("%d and %d reads a run", len(alone), len(crowded))
	values := append(measure.Percentiles(alone, 50, 99), measure.Percentiles(crowded, 50, 99)...)
	return measure.Reading{Values: values, Note: note}, nil
}

func (h *readHarness) waitFor(ctx context.Context, p consistency.Position) error {
	_, err := h.waiters.Wait(ctx, p)
	return err
}

func (h *readHarness) readsFor(ctx context.Context, limit time.Duration) (took []time.Duration, err error) {
	for start := time.Now(); time.Since(start) < limit; {
		began := time.Now()
		if _, err := h.service.Get(ctx, everyone, h.videos[len(took)%len(h.videos)].id, consistency.Requirement{}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
