package reads

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/lab/bench/measure"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/catalog"
)

func wakes() measure.Series {
	return measure.Series{
		Title: fmt.Sprintf("fresh reads: from the apply to the waiting reader's answer, %d/s", waitLoad),
		Measurements: []measure.Measurement{
			waking("read.wake", "5 or less wanted; one process", (*readHarness).readHere),
			waking("read.wake_remote", "25 or less wanted; applied by another process, read over REST", (*readHarness).readThere),
		},
	}
}

// reader reads the video with the token, and returns the version that it got.
type reader func(h *readHarness, ctx context.Context, id uuid.UUID, token string) (int64, error)

// waking returns a measurement of waiting readers. Each reader waits for the next version of a
// video, and then this version is applied. The measured time is from the end of the commit to the
// reader's answer.
func waking(name, note string, read reader) measure.Measurement {
	return measure.Measurement{
		Figures: []measure.Figure{{Name: name + "_p50_ms", Unit: "ms"}, {Name: name + "_p99_ms", Unit: "ms", Note: note}},
		Run: withHarness(func(ctx context.Context, h *readHarness, v volume) (measure.Reading, error) {
			took := make([]time.Duration, v.waits)
			wait := func(ctx context.Context, i int) (err error) {
				took[i%len(took)], err = h.wake(ctx, i, read)
				return err
			}
			for _, samples := range []int{len(h.videos) / 4, len(took)} { // the first round warms up
				if _, err := measure.Paced(ctx, waitLoad, samples, wait); err != nil {
					return measure.Reading{}, err
				}
			}
			return measure.Sampled(len(took), measure.Percentiles(took, 50, 99)...), nil
		}),
	}
}

// wake measures the wait of one reader. Each video has only one reader at a time, because there are
// far more videos than readers that wait at once.
func (h *readHarness) wake(ctx context.Context, i int, read reader) (time.Duration, error) {
	v := h.videos[i%len(h.videos)]
	version := v.version.Add(1)
	type answer struct {
		version int64
		err     error
		at      time.Time
	}
	answered := make(chan answer, 1)
	go func() {
		got, err := read(h, ctx, v.id, videoToken(v.id, version))
		answered <- answer{got, err, time.Now()}
	}()
	select {
	case a := <-answered:
		return 0, errors.Join(a.err, fmt.Errorf("version %d is answered with %d before there is one", version, a.version))
	case <-time.After(10*time.Millisecond + rand.N(20*time.Millisecond)): // it waits by now
	}
	if err := h.deliver(ctx, v.id, version); err != nil {
		return 0, err
	}
	a := <-answered
	switch applied := h.appliedAt(v.id); {
	case a.err != nil:
		return 0, a.err
	case a.version < version || applied.IsZero():
		return 0, fmt.Errorf("version %d is answered with %d", version, a.version)
	default:
		return max(0, a.at.Sub(applied)), nil // other sessions may see the commit before this process does
	}
}

// readHere reads from the instance in this process, which applies the events.
func (h *readHarness) readHere(ctx context.Context, id uuid.UUID, token string) (int64, error) {
	required, err := catalog.VideoRequirement(consistency.Request{Token: token, Wait: consistency.MaxWait})
	if err != nil {
		return 0, err
	}
	a, err := h.service.Get(ctx, everyone, id, required)
	if err == nil && a.Source != catalog.SourceProjection {
		err = fmt.Errorf("answered by the %s", a.Source)
	}
	return a.Version, err
}

// readThere reads from the instance in the other process.
func (h *readHarness) readThere(ctx context.Context, id uuid.UUID, token string) (int64, error) {
	a, err := h.get(ctx, "/v1/videos/"+id.String(), http.Header{"Consistency-Token": {token}, "Prefer": {"wait=10"}})
	if err == nil && a.Source != catalog.SourceProjection {
		err = fmt.Errorf("answered by the %s", a.Source)
	}
	return a.Version, err
}
