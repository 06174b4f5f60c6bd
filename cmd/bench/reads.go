package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"example.com/lockstep/cmd/bench/load"
	"example.com/lockstep/cmd/bench/measure"
	"example.com/lockstep/internal/fresh"
	"example.com/lockstep/pkg/eventing"
	"example.com/lockstep/pkg/eventing/consistency"
	"example.com/lockstep/services/catalog"
)

// Reads with consistency tokens: what a token costs where the projection is fresh
// already, how soon a reader who waits has the answer after the apply, and what
// others notice of those who wait. The service is a process of its own, on a
// Postgres of its own, and its events are those of the bench.

// waitLoad is readers per second who wait, and events per second.
const waitLoad = 100

var readVolumes = [...]struct {
	reads int           // of each kind
	waits int           // of readers who wait
	crowd time.Duration // of reads beside those who wait
}{
	measure.Quick:  {100, 50, 200 * time.Millisecond},
	measure.Normal: {2_000, 800, 2 * time.Second},
	measure.Full:   {20_000, 5_000, 10 * time.Second},
}

func readSeries() []measure.Series {
	var cost measure.Measurement
	for _, k := range readKinds {
		cost.Figures = append(cost.Figures, measure.Figure{Name: "read." + k.name + "_ms", Unit: "ms", Note: k.note})
	}
	cost.Run = withDesk(readsInTurns)
	return []measure.Series{
		{
			Title:        "fresh reads: what a token costs where the projection is fresh",
			Measurements: []measure.Measurement{cost},
			Derived: []measure.Derived{
				measure.Ratio("read.token_cost", "read.token_ms", "read.plain_ms", "1.1 or less wanted"),
				measure.Ratio("read.session_cost", "read.session_ms", "read.plain_ms", ""),
				measure.Ratio("read.list_token_cost", "read.list_token_ms", "read.list_plain_ms", "one snapshot has the page and the check"),
			},
		},
		{
			Title: fmt.Sprintf("fresh reads: from the apply to the waiting reader's answer, %d/s", waitLoad),
			Measurements: []measure.Measurement{
				{Figures: []measure.Figure{{Name: "read.wake_p50_ms", Unit: "ms"}, {
					Name: "read.wake_p99_ms", Unit: "ms", Note: "5 or less wanted; one process",
				}},
					Run: withDesk(func(ctx context.Context, d *desk, size measure.Size) (measure.Reading, error) {
						return d.wakes(ctx, size, d.readHere)
					})},
				{Figures: []measure.Figure{{Name: "read.wake_remote_p50_ms", Unit: "ms"}, {
					Name: "read.wake_remote_p99_ms", Unit: "ms", Note: "25 or less wanted; applied by another process, read over REST",
				}}, Run: withDesk(func(ctx context.Context, d *desk, size measure.Size) (measure.Reading, error) {
					return d.wakes(ctx, size, d.readThere)
				})},
			},
		},
		{
			Title: "fresh reads: others beside 10,000 who wait",
			Measurements: []measure.Measurement{{Figures: []measure.Figure{
				{Name: "read.alone_ms", Unit: "ms", Note: "without a token, in the process, one at a time"},
				{Name: "read.alone_p99_ms", Unit: "ms"},
				{Name: "read.crowded_ms", Unit: "ms", Note: "the same while 10,000 wait, each for another video"},
				{Name: "read.crowded_p99_ms", Unit: "ms"},
			}, Run: withDesk(crowded)}},
			Derived: []measure.Derived{measure.Ratio("read.crowd_cost", "read.crowded_ms", "read.alone_ms", "")},
		},
	}
}

// readKinds are the reads over REST that take turns, all of them of what is there.
var readKinds = []struct {
	name, note string
	list       bool
	named      int // videos that its token names; 0: there is none
}{
	{"plain", "GET of a video over REST, median", false, 0},
	{"token", "the same with its token, which is reached", false, 1},
	{"session", "the same with a token of 32 videos", false, consistency.MaxPositions},
	{"list_plain", "a page of 50", true, 0},
	{"list_token", "the same with a token of one video", true, 1},
}

// readsInTurns takes one read of each kind after the other, on one connection, in
// another order each time: a read is faster behind one of the same row, and slower
// behind a page.
func readsInTurns(ctx context.Context, d *desk, size measure.Size) (measure.Reading, error) {
	took := make([][]time.Duration, len(readKinds))
	for n := range readVolumes[size].reads {
		for _, i := range rand.Perm(len(readKinds)) {
			k := readKinds[i]
			v, path := d.videos[n%len(d.videos)], "/v1/videos"
			if !k.list {
				path += "/" + v.id.String()
			}
			header := http.Header{}
			if k.named > 0 {
				token, err := d.token(n, k.named)
				if err != nil {
					return measure.Reading{}, err
				}
				header.Set("Consistency-Token", token)
			}
			began := time.Now()
			a, err := d.get(ctx, path, header)
			took[i] = append(took[i], time.Since(began))
			if err != nil {
				return measure.Reading{}, err
			}
			if a.Source != catalog.SourceProjection {
				return measure.Reading{}, fmt.Errorf("%s is answered by the %s", k.name, a.Source)
			}
		}
	}
	var values []float64
	for _, t := range took {
		values = append(values, measure.Percentiles(t, 50)...)
	}
	return measure.Reading{Values: values, Note: fmt.Sprintf("%d reads a run", len(took[0]))}, nil
}

// wakes has readers wait for the next version of a video each, and then applies
// that. It measures from the end of the commit to the reader's answer.
func (d *desk) wakes(
	ctx context.Context, size measure.Size, read func(context.Context, uuid.UUID, string) (int64, error),
) (measure.Reading, error) {
	warmUp, n := len(d.videos)/4, readVolumes[size].waits
	took := make([]time.Duration, n)
	wait := func(ctx context.Context, i int) (err error) {
		took[i%n], err = d.wake(ctx, i, read)
		return err
	}
	for _, samples := range []int{warmUp, n} {
		if _, err := load.Paced(ctx, waitLoad, samples, wait); err != nil {
			return measure.Reading{}, err
		}
	}
	return measure.Reading{Values: measure.Percentiles(took, 50, 99), Note: fmt.Sprintf("%d samples a run", n)}, nil
}

// wake is one reader's wait. A video has one reader at a time: there are far more
// of them than readers in the time that a wait takes.
func (d *desk) wake(ctx context.Context, i int, read func(context.Context, uuid.UUID, string) (int64, error)) (time.Duration, error) {
	v := d.videos[i%len(d.videos)]
	version := v.version.Add(1)
	type answer struct {
		version int64
		err     error
		at      time.Time
	}
	answered := make(chan answer, 1)
	go func() {
		got, err := read(ctx, v.id, videoToken(v.id, version))
		answered <- answer{got, err, time.Now()}
	}()
	select {
	case a := <-answered:
		return 0, errors.Join(a.err, fmt.Errorf("version %d is answered with %d before there is one", version, a.version))
	case <-time.After(10*time.Millisecond + rand.N(20*time.Millisecond)): // it waits by now
	}
	if err := d.deliver(ctx, v.id, version); err != nil {
		return 0, err
	}
	a := <-answered
	switch applied := d.appliedAt(v.id); {
	case a.err != nil:
		return 0, a.err
	case a.version < version || applied.IsZero():
		return 0, fmt.Errorf("version %d is answered with %d", version, a.version)
	default:
		return max(0, a.at.Sub(applied)), nil // the commit is seen by others before its own process knows
	}
}

// readHere is a read at the instance that applies the event.
func (d *desk) readHere(ctx context.Context, id uuid.UUID, token string) (int64, error) {
	demand, err := catalog.Read(fresh.Request{Token: token, Wait: fresh.MaxWait})
	if err != nil {
		return 0, err
	}
	a, err := d.service.Get(ctx, id, demand)
	if err == nil && a.Source != catalog.SourceProjection {
		err = fmt.Errorf("answered by the %s", a.Source)
	}
	return a.Version, err
}

// readThere is a read at the other instance.
func (d *desk) readThere(ctx context.Context, id uuid.UUID, token string) (int64, error) {
	a, err := d.get(ctx, "/v1/videos/"+id.String(), http.Header{"Consistency-Token": {token}, "Prefer": {"wait=10"}})
	if err == nil && a.Source != catalog.SourceProjection {
		err = fmt.Errorf("answered by the %s", a.Source)
	}
	return a.Version, err
}

// crowd is as many as may wait at one instance.
const crowd = 10_000

// crowded reads without a token: alone, and then beside a crowd.
func crowded(ctx context.Context, d *desk, size measure.Size) (measure.Reading, error) {
	limit := readVolumes[size].crowd
	if _, err := d.readsFor(ctx, limit/2); err != nil { // connections prepare their statements, and the machine wakes up
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
			// A probe had the place for a moment.
			for errors.Is(d.waitFor(waiting, p), consistency.ErrTooManyWaiters) && eventing.Sleep(waiting, time.Millisecond, nil) {
			}
		})
	}
	for full := false; !full; {
		probe, stop := context.WithTimeout(ctx, time.Microsecond)
		full = errors.Is(d.waitFor(probe, position(uuid.Must(uuid.NewV7()), 1)), consistency.ErrTooManyWaiters)
		stop()
		if !eventing.Sleep(ctx, 10*time.Millisecond, nil) {
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
		if _, err := d.service.Get(ctx, d.videos[len(took)%len(d.videos)].id, fresh.Demand{}); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
